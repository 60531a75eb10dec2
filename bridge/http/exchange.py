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


Write = Callable[[bytes], Awaitable[None]]
"""Sends a piece of a body; waits while the client does not read. That it returns proves nothing."""


class Reply(NamedTuple):
    """A reply: whole, or with a `flow` that writes its body bit by bit for as long as it likes."""

    status: int
    headers: list[Pair]
    body: bytes = b""
    flow: Callable[[Write], Coroutine[object, object, None]] | None = None
    """Cancelled when the client leaves. What it raises breaks the answer off."""
    undo: Callable[[], None] | None = None
    """Called when the client certainly never got the reply, and at the end of every flow."""


Endpoint = Callable[[Request], Awaitable[Reply]]


def refuse(error: BridgeError) -> Reply:
    """Turn an error into its problem document."""
    headers, body = problem.encode(error)
    return Reply(error.status, [*headers, NO_STORE], body)
