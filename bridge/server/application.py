"""What a server runs: an ASGI application, which may be able to answer at once, and to complete refusals."""

from collections.abc import Awaitable, Iterable
from typing import Protocol, runtime_checkable

from starlette.types import Message, Receive, Scope, Send

from bridge.errors import BridgeError


@runtime_checkable
class BeginsAtOnce(Protocol):
    """Optional capability of an ASGI application: it answers without a task if nothing has to be waited for.

    Granian uses it: a task for each request would cost as much as the rest of a produce.
    """

    def begin(self, scope: Scope, event: Message | None, receive: Receive, send: Send) -> Awaitable[None] | None:
        """Answer one request.

        `event` is the first result of `receive`; None: it has not been called. `send` acts when it is called; only a
        stream has to await it. Returns None if the response has been sent, else what is left to do, which
        is then awaited in a task.
        """
        ...


@runtime_checkable
class NotesRefusals(Protocol):
    """Optional capability of an ASGI application: it counts the requests that the server refuses without calling it."""

    def refused(self, error: BridgeError, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Count a refusal. Returns what its response needs so that a web page of an allowed origin can read it.

        `headers`: those of the request.
        """
        ...
