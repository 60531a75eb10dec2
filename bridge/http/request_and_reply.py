"""The arguments and the result of an endpoint, independent of the server interface: `Request`, `Limits`, `Reply`."""

import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, NamedTuple, Protocol

from bridge.engine.pull_and_prefetch import CancelOnDisconnect
from bridge.errors import BridgeError, encode_problem
from bridge.identity.caller import Caller
from bridge.wire.headers import VERSION, Headers

Pair = tuple[bytes, bytes]

NO_STORE: Final[Pair] = (b"cache-control", b"no-store")
OMS_VERSION: Final[Pair] = (b"x-oms-version", VERSION)

READS_BODY: Final = frozenset(("POST /v1/stream",))
"""The routes whose endpoint reads the body while it responds."""
NACK_DELAY_MAX: Final = 86_400_000
"""Longest `x-oms-delaymills`, a day in ms. Until then the message blocks its key and occupies the prefetch buffer."""
CALLBACK_BATCH_MAX: Final = 1000
"""Largest `x-oms-maxmessages` of a callback."""
REQUEST_ID_MAX: Final = 200
"""Longest `x-oms-requestid`, characters."""
TRANSACTION_TIMEOUT: Final = 60_000
"""`x-oms-transaction-timeout` of a produce that sets none, ms."""
TRANSACTION_TIMEOUT_MAX: Final = 3_600_000
"""Longest `x-oms-transaction-timeout`, ms."""
RECEIPTS_MAX: Final = 1000
"""Receipts in one `x-oms-receipt`."""


class Limits(NamedTuple):
    """The settings that limit requests. Bytes, messages, milliseconds."""

    body: int = 4 << 20
    headers: int = 32 << 10
    batch: int = 1000
    body_timeout: int = 30_000
    lease: int = 30_000
    max_lease: int = 900_000
    stall: int = 300_000


class BodyStream(Protocol):
    """The body of a request whose endpoint reads it, and the bytes that count as held for the client."""

    async def read(self) -> bytes:
        """Return the next piece, or nothing at the end. Raises `BodyInvalid` if the body is incomplete."""
        ...

    def hold(self, size: int) -> None:
        """Count bytes that are held. Raises `LimitReached` or `TooManyInFlight`."""

    def release(self, size: int) -> None:
        """Count bytes as not held any more."""


class Request(NamedTuple):
    """A request whose headers and body have been read and checked against the limits."""

    headers: Headers
    header_size: int
    """Bytes of all names and values of the headers."""
    query: bytes
    path: str
    body: bytes
    peer: str
    """host:port of the client."""
    cancel_on_disconnect: CancelOnDisconnect
    body_stream: BodyStream
    """For an endpoint of `READS_BODY`, whose `body` is empty."""
    route: str = ""
    """Method and path, as in the table of routes."""
    caller: Caller | None = None
    """Who has sent it; None: the bridge has no identities, or the route is open to all."""


Write = Callable[[bytes], Awaitable[None]]
"""Sends a piece of a body; waits while the client does not read. Returning does not mean the client has read it.

Raises `TimeoutError` if the client stops reading, `LimitReached` or `TooManyInFlight` if the piece does not fit into
the budget of bytes."""


class Reply(NamedTuple):
    """A reply: a whole body, or a `stream` that writes the body piece by piece."""

    status: int
    headers: list[Pair]
    body: bytes = b""
    stream: Callable[[Write], Coroutine[object, object, None]] | None = None
    """Cancelled when the client disconnects. An exception aborts the response."""
    cleanup: Callable[[], None] | None = None
    """Returns the message, or closes the consumer. Called at the end of every stream; for a whole body, only if the
    client certainly did not get it."""


quoted: Final = json.encoder.encode_basestring_ascii
"""Writes a string as JSON in ASCII."""

Respond = Callable[[Request], Awaitable[Reply]]
"""An endpoint."""


def problem_reply(error: BridgeError) -> Reply:
    """Return the problem document of an error."""
    headers, body = encode_problem(error)
    return Reply(error.status, [*headers, NO_STORE], body)


def json_reply(status: int, body: bytes) -> Reply:
    """Return a JSON document that must not be cached."""
    return Reply(status, [OMS_VERSION, (b"content-type", b"application/json"), NO_STORE], body)
