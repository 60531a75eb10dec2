"""What the rows of the table use: a running bridge with a client, endpoints for callbacks, certificates."""

import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from uuid import uuid4

import httpx
import trustme

from tests.http.callback_endpoint import Endpoint
from tests.launch import Bridge
from tests.settings import held_backend

PATIENCE: Final = 60.0
"""Seconds until something that does not come is a failure: a guard, not a measurement."""


class Resources(NamedTuple):
    """Files and endpoints that values of settings name, for all bridges of a run."""

    directory: Path
    authority: trustme.CA
    certificate: Path
    key: Path
    ca: Path
    endpoint: Endpoint
    secure: Endpoint
    """The same kind of endpoint behind TLS, with a certificate of `authority`."""
    held: Mapping[str, str]
    """Variables that install the backend `held://`."""

    @classmethod
    @contextmanager
    def ready(cls, directory: Path) -> Iterator[Self]:
        authority = trustme.CA()
        issued = authority.issue_cert("localhost", "127.0.0.1")
        certificate, key, ca = (directory / name for name in ("server.pem", "server.key", "ca.pem"))
        certificate.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        ca.write_bytes(authority.cert_pem.bytes())
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        issued.configure_cert(context)
        endpoint, secure = Endpoint(), Endpoint()
        secure._server.socket = context.wrap_socket(secure._server.socket, server_side=True)
        try:
            held = held_backend.install(directory)
            yield cls(directory, authority, certificate, key, ca, endpoint.listen(), secure.listen(), held)
        finally:
            endpoint.close()
            secure.close()

    def file(self, name: str, text: str) -> str:
        """Write a file and return its path."""
        path = self.directory / name
        path.write_text(text, "utf-8")
        return str(path)


class BridgeClient:
    """A client of one bridge. Use it as a context manager."""

    def __init__(self, bridge: Bridge, resources: Resources) -> None:
        self.bridge = bridge
        self.resources = resources
        transport = httpx.HTTPTransport(local_address="127.0.0.2", verify=False)  # the rows about TLS bring their own
        self.http = httpx.Client(base_url=bridge.url, trust_env=False, timeout=PATIENCE, transport=transport)
        """Not from 127.0.0.1, which has no share."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()

    def ask(
        self, method: str, path: str, headers: Mapping[str, object] | None = None, body: bytes = b""
    ) -> httpx.Response:
        """Send a request; the headers are named as after `x-oms-`."""
        sent = {"x-oms-version": "1.0.0"} | {f"x-oms-{name}": str(value) for name, value in (headers or {}).items()}
        return self.http.request(method, path, headers=sent, content=body)

    def produce(self, destination: str, body: bytes = b"x", **fields: object) -> httpx.Response:
        """Produce one message, complete enough for `binding.strict`."""
        known = {"messageid": uuid4(), "borntimestamp": time.time_ns() // 1_000_000, "bornhost": "test:1"}
        named = {"destination": destination, **known, **fields}
        return self.ask("POST", "/v1/messages", {f"h-{name}": value for name, value in named.items()}, body)

    def store(self, destination: str, body: bytes = b"x", **fields: object) -> None:
        """Produce one message that must be stored."""
        answer = self.produce(destination, body, **fields)
        assert answer.status_code == 200, answer.text

    def batch(self, destination: str, count: int) -> httpx.Response:
        """Produce so many empty messages in one request."""
        header = {"destination": destination, "bornTimestamp": 1, "bornHost": "test:1"}
        content = json.dumps([{"header": header | {"messageId": f"m{number}"}} for number in range(count)])
        headers = {"x-oms-version": "1.0.0", "content-type": "application/json"}
        return self.http.post("/v1/messages", headers=headers, content=content)

    def pull(self, source: str, group: str = "g", **more: object) -> httpx.Response:
        """Pull one message under ack."""
        asked = {"source": source, "consumerid": group, "ack": "true", **more}
        return self.ask("GET", "/v1/messages", asked)

    def release(self) -> None:
        """Make the backend `held://` confirm the messages that it has held back."""
        assert self.pull("release", group=fresh()).status_code == httpx.codes.NO_CONTENT

    def settle(self, how: str, pulled: httpx.Response, **more: object) -> None:
        """`ack` or `nack` what was pulled."""
        assert pulled.status_code == 200, pulled.text
        answer = self.ask("POST", f"/v1/{how}", {"receipt": pulled.headers["x-oms-receipt"], **more})
        assert answer.status_code == 204, answer.text

    def register(self, source: str, url: str, **more: object) -> httpx.Response:
        """Register a callback of the group `g`."""
        return self.ask("POST", "/v1/push", {"source": source, "consumerid": "g", "callbackurl": url, **more})

    def registration(self, source: str) -> dict[str, Any]:
        """Return what the bridge shows of a callback."""
        return next(entry for entry in self.ask("GET", "/v1/callbacks").json() if entry["source"] == source)

    def capabilities(self) -> dict[str, Any]:
        """Return `limits` of the capabilities."""
        limits: dict[str, Any] = self.ask("GET", "/v1/capabilities").json()["limits"]
        return limits

    def count(self, name: str) -> int:
        """Return one of the counts of /status."""
        return int(self.status()["counts"][name])

    def metrics(self) -> str:
        """Return its metrics."""
        return httpx.get(f"{self.bridge.management}/metrics", trust_env=False, timeout=PATIENCE).text

    def active(self) -> float:
        """Return how many requests the bridge is answering."""
        text = self.metrics()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("oms_requests_active{"))

    def status(self) -> dict[str, Any]:
        """Return /status."""
        url = f"{self.bridge.management}/status"
        status: dict[str, Any] = httpx.get(url, trust_env=False, timeout=PATIENCE).json()
        return status


def fresh() -> str:
    """Return a destination that nothing else uses."""
    return f"reach-{uuid4().hex}"


def code(answer: httpx.Response) -> str | int:
    """Return the code of a problem document, or the status of another answer."""
    named = answer.headers.get("x-oms-error")
    return answer.status_code if named is None else str(named)


def wait_until(done: Callable[[], object], what: str) -> None:
    """Wait for a condition; AssertionError if it does not come."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, f"it did not come: {what}"
        time.sleep(0.02)
