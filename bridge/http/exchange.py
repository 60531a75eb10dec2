"""One request and its reply, free of any server interface: what endpoints see."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import NamedTuple, Protocol, TypeVar

from bridge.errors import BridgeError
from bridge.wire import problem
from bridge.wire.headers import Headers

T = TypeVar("T")
Pair = tuple[bytes, bytes]

NO_STORE: Pair = (b"cache-control", b"no-store")


class Guarded(Protocol):
    """Runs work that ends early when the client leaves."""

    async def __call__(self, work: Coroutine[object, object, T]) -> T:
        """Return the work's result; cancel it, and never return, when the client is gone."""
        ...


class Request(NamedTuple):
    """A request whose headers and body have been read and checked against the limits."""

    headers: Headers
    query: bytes
    body: bytes
    peer: str
    """host:port of the client."""
    unless_gone: Guarded


class Reply(NamedTuple):
    """A whole reply. `undo` is called when the client certainly never got it."""

    status: int
    headers: list[Pair]
    body: bytes = b""
    undo: Callable[[], None] | None = None


Endpoint = Callable[[Request], Awaitable[Reply]]


def refuse(error: BridgeError) -> Reply:
    """Turn an error into its problem document."""
    headers, body = problem.encode(error)
    return Reply(error.status, [*headers, NO_STORE], body)
