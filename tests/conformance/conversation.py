"""How the suite talks to a bridge: HTTP requests with unique names, and what to expect of the answers."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest

PATIENCE: Final = 20_000
"""How long a pull waits for a message that must come, ms. A guard: it ends when the message is there."""
QUIET: Final = 200
"""How long a pull waits where nothing must come, ms."""
SETTLED_IN: Final = 0.3
"""Seconds in which a bridge that has joined a group has fetched what is there."""

_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._-")
Fields = Mapping[str, object]
Pairs = Iterable[tuple[str | bytes, str | bytes]]


class Target(NamedTuple):
    """The bridge under test."""

    url: str
    management: str | None
    """None: unknown, as of a bridge started elsewhere."""
    capabilities: Mapping[str, Any]

    @property
    def durable(self) -> bool:
        """Whether messages survive the death of the bridge."""
        return bool(self.capabilities["durable"])

    def limit(self, name: str) -> int:
        """One of the limits that the bridge declares."""
        return int(self.capabilities["limits"][name])

    def need(self, *fields: str) -> None:
        """Skip the test where the bridge does not honour one of the fields."""
        for field in fields:
            if self.capabilities["fields"][field] == "unsupported":
                pytest.skip(f"the bridge declares {field} unsupported")


@dataclass(frozen=True)
class Taken:
    """One message as it was pulled."""

    body: bytes
    headers: httpx.Headers

    @classmethod
    def of(cls, answer: httpx.Response) -> Self:
        """Read an answer; of one in the JSON form, the headers are those that it stands for."""
        if answer.headers.get("x-oms-form") != "json":
            return cls(answer.content, answer.headers)
        item = answer.json()
        fields = item["header"] | item["extensionHeader"]
        named = {"content-type": fields.pop("contentType", "application/octet-stream")}
        named |= dict(_field(name.lower(), str(value)) for name, value in fields.items())
        for name, value in item["properties"].items():
            escaped = "".join(c if c in _PLAIN else "".join(f"%{byte:02x}" for byte in c.encode()) for c in name)
            named |= [_extended(f"x-oms-p-{escaped}", value)]
        return cls(base64.b64decode(item["data"]), httpx.Headers(dict(answer.headers) | named))

    @property
    def receipt(self) -> str:
        """What acknowledges it."""
        return self.headers["x-oms-receipt"]

    @property
    def count(self) -> int:
        """Which delivery of the message this is."""
        return int(self.headers["x-oms-h-deliverycount"])


class Conversation:
    """One HTTP/2 connection with its own destination and group.

    At most one pull may wait on it at a time: httpx keeps the answers of other requests back while two of them wait.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.destination = f"oms-conformance-{uuid4().hex}"
        self.group = f"g-{uuid4().hex[:12]}"

    @asynccontextmanager
    async def beside(self) -> AsyncIterator["Conversation"]:
        """Open another connection for the same destination and group: another consumer."""
        async with connection(str(self.http.base_url)) as http:
            other = Conversation(http)
            other.destination, other.group = self.destination, self.group
            yield other

    async def post(self, body: bytes = b"", pairs: Pairs = (), **fields: object) -> httpx.Response:
        """Send one message and return whatever the bridge answers. `fields` are x-oms-h- headers."""
        named = {"destination": self.destination} | fields
        headers = [("x-oms-version", "1.0.0"), *(_field(name, str(value)) for name, value in named.items())]
        return await self.http.post("/v1/messages", content=body, headers=_raw((*headers, *pairs)))

    async def produce(self, body: bytes = b"", pairs: Pairs = (), **fields: object) -> httpx.Response:
        """Store one message."""
        answer = await self.post(body, pairs, **fields)
        assert answer.status_code == 200, answer.text
        return answer

    async def get(
        self, pairs: Pairs = (), params: Mapping[str, str] | None = None, **parameters: object
    ) -> httpx.Response:
        """Pull and return whatever the bridge answers. `parameters` are x-oms- headers."""
        named = {"version": "1.0.0", "source": self.destination, "consumerid": self.group, "ack": "true"} | parameters
        headers = [(f"x-oms-{name}", str(value)) for name, value in named.items() if value is not None]
        return await self.http.get("/v1/messages", headers=_raw((*headers, *pairs)), params=params)

    async def take(self, pairs: Pairs = (), **parameters: object) -> Taken:
        """Pull a message that must come."""
        merged: dict[str, Any] = {"waitmills": PATIENCE} | parameters
        answer = await self.get(pairs, **merged)
        assert answer.status_code == 200, f"{answer.status_code} {answer.text}"
        return Taken.of(answer)

    async def take_all(self, count: int, **parameters: Any) -> list[Taken]:  # noqa: ANN401 - handed on
        """Pull `count` messages one after another, acknowledging each."""
        taken = []
        for _ in range(count):
            taken.append(await self.take(**parameters))
            await self.ack(taken[-1].receipt)
        return taken

    async def nothing(self, wait: int = QUIET, **parameters: Any) -> None:  # noqa: ANN401 - handed on
        """Make sure that no message comes."""
        answer = await self.get(waitmills=wait, **parameters)
        assert answer.status_code == 204, f"{answer.status_code} {answer.content[:80]!r}"

    async def settle(self, how: str, receipt: str, **parameters: object) -> httpx.Response:
        """Send ack, nack or extend and return whatever the bridge answers."""
        headers = {"x-oms-version": "1.0.0", "x-oms-receipt": receipt}
        return await self.http.post(
            f"/v1/{how}", headers=headers | {f"x-oms-{n}": str(v) for n, v in parameters.items()}
        )

    async def ack(self, receipt: str) -> None:
        """Settle for good."""
        await self._done("ack", receipt)

    async def nack(self, receipt: str, **parameters: object) -> None:
        """Give back."""
        await self._done("nack", receipt, **parameters)

    async def extend(self, receipt: str, lease: int) -> None:
        """Keep longer."""
        await self._done("extend", receipt, leasemills=lease)

    async def join(self, **parameters: Any) -> None:  # noqa: ANN401 - handed on
        """Make the bridge fetch for the group: what is stored now competes from the next pull on."""
        await self.produce(b"the first, so that the group is joined")
        await self.ack((await self.take(**parameters)).receipt)

    async def _done(self, how: str, receipt: str, **parameters: object) -> None:
        answer = await self.settle(how, receipt, **parameters)
        assert answer.status_code == 204, answer.text


def connection(url: str) -> httpx.AsyncClient:
    """HTTP/2 from the first byte; no proxy, no header that a test did not ask for."""
    return httpx.AsyncClient(
        base_url=url,
        http1=False,
        http2=True,
        trust_env=False,
        timeout=httpx.Timeout(70),
        headers={"accept-encoding": "identity"},
    )


def _field(name: str, value: str) -> tuple[str, str]:
    """Return a field as a header: an extended value unless it is ASCII."""
    return _extended(f"x-oms-h-{name}", value)


def _extended(name: str, value: str) -> tuple[str, str]:
    return (name, value) if value.isascii() else (f"{name}*", f"UTF-8''{quote(value, safe='')}")


def _raw(pairs: Pairs) -> list[tuple[bytes, bytes]]:
    return [(_bytes(name), _bytes(value)) for name, value in pairs]


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


async def fetched() -> None:
    """Leave the bridge the time to fetch what has been stored."""
    await asyncio.sleep(SETTLED_IN)


def now() -> int:
    """Milliseconds since 1970 UTC, rounded up: what lies before it has passed."""
    return -(-time.time_ns() // 1_000_000)


def refused(answer: httpx.Response, status: int, code: str) -> str:
    """Make sure that an answer is the problem document of that code; returns its sentence."""
    assert answer.status_code == status, f"{answer.status_code} {answer.text}"
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["status"], problem["code"]) == (status, code), problem
    assert answer.headers["x-oms-error"] == code
    assert isinstance(problem["detail"], str)
    return str(problem["detail"])
