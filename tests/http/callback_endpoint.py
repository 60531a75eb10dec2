"""A real HTTP endpoint for callbacks, and how a test registers one."""

import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, Final, NamedTuple, Self

import httpx

from tests.conformance.endpoint_server import EndpointServer
from tests.launch import Bridge
from tests.trouble import PATIENCE

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - of these tests

Answer = tuple[int, Mapping[str, str]] | tuple[int, Mapping[str, str], bytes]
OK: Final[Answer] = (200, {})


class Posted(NamedTuple):
    """One POST as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def attempt(self) -> int:
        return int(self.headers["x-oms-h-deliverycount"])


def take(_: Posted) -> Answer:
    """Answer as an endpoint does that takes everything."""
    return OK


class Endpoint:
    """Listens on 127.0.0.1; each path answers by its script, with 200 where it has none."""

    def __init__(self) -> None:
        self.scripts: dict[str, Callable[[Posted], Answer]] = {}
        self.posts: list[Posted] = []
        self._lock = threading.Lock()
        self._server = EndpointServer(("127.0.0.1", 0), self._handler(), bind_and_activate=False)
        self._server.server_bind()
        self.port: int = self._server.server_address[1]
        self._thread: threading.Thread | None = None

    def listen(self) -> Self:
        """Begin to listen; until then the port refuses connections."""
        self._server.server_activate()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def to(self, path: str) -> list[Posted]:
        """Return what has come to a path."""
        with self._lock:
            return [post for post in self.posts if post.path == path]

    def wait_for(self, path: str, count: int) -> list[Posted]:
        wait_until(lambda: len(self.to(path)) >= count)
        return self.to(path)

    def settings(self, **more: str) -> dict[str, str]:
        """Return what a bridge needs to call it."""
        return {
            "OMS_CALLBACKS__TARGETS": f"http://127.0.0.1:{self.port}",
            "OMS_CALLBACKS__NETWORKS": "127.0.0.1/32",
            "OMS_CALLBACKS__SECRETS": SECRET,
            **more,
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                posted = Posted(self.path, dict(self.headers.items()), body, time.monotonic())
                with endpoint._lock:
                    endpoint.posts.append(posted)
                status, headers, *parts = endpoint.scripts.get(self.path, take)(posted)
                answer = b"".join(parts)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def ask(bridge: Bridge, method: str, path: str, headers: Mapping[str, object], body: bytes = b"") -> httpx.Response:
    sent = {"x-oms-version": "1.0.0"} | {f"x-oms-{name}": str(value) for name, value in headers.items()}
    return httpx.request(method, bridge.url + path, headers=sent, content=body, trust_env=False, timeout=PATIENCE)


def register(
    bridge: Bridge, source: str, url: str, group: str = "app", accept: str = "*/*", **more: object
) -> httpx.Response:
    asked = {"version": "1.0.0", "source": source, "consumerid": group, "callbackurl": url, **more}
    headers = {"accept": accept} | {f"x-oms-{name}": str(value) for name, value in asked.items()}
    return httpx.post(f"{bridge.url}/v1/push", headers=headers, trust_env=False, timeout=PATIENCE)


def produce(bridge: Bridge, destination: str, body: bytes, **fields: object) -> None:
    named = {f"h-{name}": value for name, value in {"destination": destination, **fields}.items()}
    answer = ask(bridge, "POST", "/v1/messages", named, body)
    assert answer.status_code == 200, answer.text


def pull(bridge: Bridge, source: str, group: str = "app", wait: int = 0) -> httpx.Response:
    asked = {"source": source, "consumerid": group, "ack": "true", "waitmills": wait}
    return ask(bridge, "GET", "/v1/messages", asked)


def listed(bridge: Bridge, source: str) -> dict[str, Any] | None:
    """Return the registration of a destination as `GET /v1/callbacks` shows it."""
    answer = httpx.get(f"{bridge.url}/v1/callbacks", trust_env=False, timeout=PATIENCE)
    assert answer.status_code == 200
    found = [entry for entry in answer.json() if entry["source"] == source]
    return found[0] if found else None


def settled(bridge: Bridge, source: str) -> Callable[[], bool]:
    """Whether a callback has nothing in flight."""
    return lambda: (listed(bridge, source) or {}).get("inFlight") == 0
