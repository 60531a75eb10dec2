"""`GET /v1/messages`, `/v1/ack`, `/v1/nack`, `/v1/extend`: pull one message, settle messages by their receipts."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple, Self

from msgspec import Struct
from msgspec.json import Decoder

from bridge.engine.client_limits import client_of
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine, Pulled
from bridge.engine.pull_and_prefetch import WAIT_MAX, PullRequest
from bridge.errors import BodyInvalid, ContentTypeUnsupported, HeaderInvalid, HeaderMissing, HeaderRepeated
from bridge.http.origin_policy import PULL
from bridge.http.params import (
    Params,
    flag,
    number,
    parse_lease,
    parse_optional_subscription,
    parse_params,
    parse_receipts,
    parse_subscription,
)
from bridge.http.request_and_reply import (
    NACK_DELAY_MAX,
    NO_STORE,
    OMS_VERSION,
    RECEIPTS_MAX,
    REQUEST_ID_MAX,
    Limits,
    Pair,
    Reply,
    Request,
)
from bridge.identity.rules import Operation
from bridge.long_work import Slicer
from bridge.message import Message
from bridge.wire import cloudevents, gzip_body, jsonform
from bridge.wire.header_text import printable
from bridge.wire.headers import Headers, encode, fits_http

_GZIP: Final[Sequence[Pair]] = ((b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))


class _Receipts(Struct, forbid_unknown_fields=True, gc=False):
    """The body of a request that settles messages."""

    receipts: list[str] = []


_RECEIPTS: Final = Decoder(_Receipts)
_SHORT: Final = 1024
"""Bytes of a pull's headers and query that are remembered, parsed."""


class PullArguments(NamedTuple):
    """What a pull says."""

    key: SubscriptionKey
    pull_request: PullRequest
    ack: bool
    """False: the message is settled before it is sent."""
    receipts: Sequence[str]
    """Acknowledged before."""

    @classmethod
    def parse(cls, limits: Limits, headers: tuple[tuple[str, str], ...], query: bytes) -> Self:
        """Read headers and query. Raises `BridgeError`."""
        params = parse_params(dict(headers), query, PULL)
        key = parse_subscription(params)
        ack = flag(params, "ack")
        request_id = params.get("requestid") if ack else None
        pull_request = PullRequest(
            parse_lease(params, limits), min(number(params, "waitmills", 0), WAIT_MAX), request_id
        )
        if request_id is not None and not 0 < len(request_id) <= REQUEST_ID_MAX:
            raise HeaderInvalid(f"x-oms-requestid must have 1 to {REQUEST_ID_MAX} characters.")
        return cls(key, pull_request, ack, parse_receipts(params))


class PullEndpoint:
    """Hands out one message."""

    def __init__(self, engine: Engine, limits: Limits, slicer: Slicer) -> None:
        self._engine = engine
        self._limits = limits
        self._slicer = slicer
        self._parse = partial(PullArguments.parse, limits)
        self._parse_cached = lru_cache(maxsize=256)(self._parse)

    async def pull(self, request: Request) -> Reply:
        """Return one message, or 204. Acknowledges the receipts of the request first."""
        headers, query = request.headers.parameters, request.query
        # The pulls of a client say the same, unless they bring receipts.
        repeats = b"receipt" not in query and "receipt" not in headers and request.header_size + len(query) <= _SHORT
        parse = self._parse_cached if repeats else self._parse
        key, pull_request, ack, receipts = parse(tuple(headers.items()), query)
        caller = request.caller
        if caller is not None:
            caller.check(Operation.CONSUME, *key)
            receipts = caller.unbind(receipts)
            if pull_request.request_id is not None:  # another principal's pull cannot be repeated
                own_id = f"{caller.identity.principal}\0{pull_request.request_id}"
                pull_request = pull_request._replace(request_id=own_id)
        if receipts:
            await self._engine.leases.ack(receipts, key)
        client, watch = client_of(request.peer), request.cancel_on_disconnect
        pulled = await self._engine.pull(key, pull_request, ack=ack, client=client, watch=watch)
        if pulled is None:
            return Reply(204, [OMS_VERSION, NO_STORE])
        if pulled.settling is not None:
            await pulled.settling
        if caller is not None and pulled.receipt is not None:
            pulled = pulled._replace(receipt=caller.bind(pulled.receipt))
        return await self._deliver(pulled, request.headers)

    async def _deliver(self, pulled: Pulled, request_headers: Headers) -> Reply:
        """Send gzip as HTTP's `content-encoding` if the client accepts it, else inflate the body."""
        message, mode = pulled.message, cloudevents.accepted_mode(request_headers.plain.get(b"accept"))
        if message.compression is None:
            return _delivered(pulled, message, mode)
        if mode is None and gzip_body.accepts_gzip(request_headers.plain.get(b"accept-encoding", b"")):
            message = message._replace(compression=None)
            headers = [*encode(message), *_delivery_headers(pulled), *_GZIP]
            if fits_http(message, headers):
                return Reply(200, headers, message.body, cleanup=None if pulled.receipt is None else pulled.undo)
        return await self._inflate(pulled, mode)

    async def _inflate(self, pulled: Pulled, mode: cloudevents.Mode | None) -> Reply:
        inflating = gzip_body.inflate_message(pulled.message, self._limits.body)
        try:
            return _delivered(pulled, await self._slicer.run_alone(inflating), mode)
        except asyncio.CancelledError:
            pulled.undo()
            raise


def _delivered(pulled: Pulled, message: Message, mode: cloudevents.Mode | None) -> Reply:
    """Send a message as an event, as headers and a body, or in the JSON form if not every client reads the headers."""
    if mode is not None:
        headers, body = cloudevents.encode(message, mode)
        headers.append(OMS_VERSION)
    else:
        headers, body = encode(message), message.body
    headers += _delivery_headers(pulled)
    if mode is None and not fits_http(message, headers):
        body = jsonform.encode(message, pulled.receipt, pulled.lease_until)
        headers = [OMS_VERSION, jsonform.FORM, (b"content-type", jsonform.MEDIA_TYPE), *_delivery_headers(pulled)]
    # A message that is settled is sent even if its client may have disconnected: no other client gets it.
    return Reply(200, headers, body, cleanup=None if pulled.receipt is None else pulled.undo)


def _delivery_headers(pulled: Pulled) -> list[Pair]:
    """Return the headers of a delivery in any form."""
    if pulled.receipt is None:
        return [NO_STORE]
    receipt = (b"x-oms-receipt", pulled.receipt.encode("ascii"))
    return [receipt, (b"x-oms-leaseuntil", b"%d" % pulled.lease_until), NO_STORE]


class SettleEndpoints:
    """Acknowledges messages, returns them, or extends their leases."""

    def __init__(self, engine: Engine, limits: Limits) -> None:
        self._engine = engine
        self._limits = limits

    async def ack(self, request: Request) -> Reply:
        """Acknowledge. Doing so twice is 204 as well."""
        params, receipts = _parse_receipts(request)
        await self._engine.leases.ack(receipts, parse_optional_subscription(params))
        return _settled()

    async def nack(self, request: Request) -> Reply:
        """Return messages to the group; they are ready again after `x-oms-delaymills`."""
        params, receipts = _parse_receipts(request)
        delay = number(params, "delaymills", 0, NACK_DELAY_MAX)
        self._engine.leases.nack(receipts, delay, parse_optional_subscription(params))
        return _settled()

    async def extend(self, request: Request) -> Reply:
        """Set the leases to end `x-oms-leasemills` from now."""
        params, receipts = _parse_receipts(request)
        self._engine.leases.extend(receipts, parse_lease(params, self._limits), parse_optional_subscription(params))
        return _settled()


def _settled() -> Reply:
    return Reply(204, [OMS_VERSION])


def _parse_receipts(request: Request) -> tuple[Params, list[str]]:
    params = parse_params(request.headers.parameters, request.query, request.route)
    receipts = parse_receipts(params)
    if request.body and (in_body := _receipts_of_body(request)):
        if receipts:
            raise HeaderRepeated("x-oms-receipt: send receipts as a header or in the body, not both.")
        receipts = in_body
    if receipts and request.caller is not None:
        receipts = request.caller.unbind(receipts)
    if not receipts:
        raise HeaderMissing(
            "x-oms-receipt is required: the value that a pull returned, several separated by commas. A body"
            ' {"receipts": [...]} in application/json says the same.'
        )
    return params, receipts


def _receipts_of_body(request: Request) -> list[str]:
    """Return the receipts of a JSON body; none if it has none. Raises `ContentTypeUnsupported`, `BodyInvalid`."""
    media_type = request.headers.plain.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type != b"application/json":
        raise ContentTypeUnsupported('A body of receipts is application/json: {"receipts": ["...", "..."]}.')
    try:
        receipts = _RECEIPTS.decode(request.body).receipts
    except (ValueError, RecursionError) as error:
        shown = printable(str(error).encode())
        raise BodyInvalid(f'A body of receipts is {{"receipts": ["...", "..."]}}; {shown}') from None
    if len(receipts) > RECEIPTS_MAX or not all(receipts):
        raise HeaderInvalid(f"receipts must be 1 to {RECEIPTS_MAX} receipts.")
    return receipts
