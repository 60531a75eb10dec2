"""`/v1/messages`: produce one message or a batch, pull one."""

import asyncio
import json
from functools import lru_cache
from typing import Final

from bridge.engine.engine import Engine, Pulled
from bridge.engine.producer import Produced, read_require
from bridge.engine.waiters import Want
from bridge.errors import BodyInvalid, BridgeError, ContentTypeUnsupported, HeaderInvalid
from bridge.http.asked import read_asked, read_group
from bridge.http.exchange import NO_STORE, Pair, Reply, Request
from bridge.http.limits import Limits
from bridge.message import Message
from bridge.wire import compression, jsonform, multipart, parameters, problem
from bridge.wire.headers import VERSION, Headers, check_size, encode
from bridge.wire.text import encode_value, printable

WAIT_MAX: Final = 60_000
"""Milliseconds that a pull may wait; a longer wish is cut to this."""
REQUEST_ID_MAX: Final = 200
HANDED_OUT_MAX: Final = 60 << 10
"""Bytes of headers that every HTTP/2 client takes: h2, and so httpx, ends the connection at 64 KiB."""

_JSON: Final = b"application/json"


class Messages:
    """The endpoints of the path."""

    def __init__(self, engine: Engine, limits: Limits) -> None:
        self._engine = engine
        self._limits = limits

    async def produce(self, request: Request) -> Reply:
        """`POST`: one message when `x-oms-h-destination` is there, else a batch by its content type."""
        headers = request.headers
        headers.require_version()
        if request.query:
            raise HeaderInvalid("A produce takes no query: what it does not read it must not seem to obey.")
        require = read_require(headers.parameters.get("require"))
        if "destination" in headers.fields:
            message = headers.message(request.body)
            if compression.is_coded(headers.plain.get(b"content-encoding")):
                message = message._replace(compression=compression.GZIP)
            message = self._checked(message)
            return _stored(await self._engine.produce(message, require, request.peer))
        batch, peer = self._batch(headers, request.body), request.peer
        # let go of what nobody needs while the backend works: see `Producer.produce_all`
        del request
        published = self._engine.produce_all(await self._judged(batch), require, peer)
        del batch
        results = await published
        failed = any(isinstance(result, BridgeError) for result in results)
        body = json.dumps([_result(result) for result in results]).encode()
        return Reply(207 if failed else 200, [(b"x-oms-version", VERSION), (b"content-type", _JSON)], body)

    async def pull(self, request: Request) -> Reply:
        """`GET`: one message, or 204; acknowledges the receipts it brings along first."""
        asked = read_asked(request)
        name = read_group(asked)
        ack = parameters.flag(asked, "ack")
        want = Want(
            self._limits.lease_of(asked),
            min(parameters.number(asked, "waitmills", 0), WAIT_MAX),
            asked.get("requestid") if ack else None,
        )
        if want.request_id is not None and not 0 < len(want.request_id) <= REQUEST_ID_MAX:
            raise HeaderInvalid(f"x-oms-requestid: 1 to {REQUEST_ID_MAX} characters are allowed.")
        if receipts := parameters.receipts(asked):
            await self._engine.ack(receipts, name)
        work = self._engine.pull(name, want, ack=ack)
        pulled = await (request.unless_gone(work) if want.wait else work)
        if pulled is None:
            return Reply(204, [(b"x-oms-version", VERSION), NO_STORE])
        return self._delivered(pulled, request.headers)

    def _batch(self, headers: Headers, body: bytes) -> list[Message | BridgeError]:
        given = headers.plain.get(b"content-type", b"").decode("latin-1")
        kind = given.partition(";")[0].strip().lower()
        if compression.is_coded(headers.plain.get(b"content-encoding")):
            raise ContentTypeUnsupported("content-encoding: a batch comes plain; each of its messages may be gzip.")
        if kind == "multipart/mixed":
            boundary = multipart.boundary_of(given)
            return multipart.decode(body, boundary, self._limits.batch, self._limits.headers)
        if kind == "application/json":
            return jsonform.decode_array(body, self._limits.batch)
        if kind.startswith("multipart/"):
            raise ContentTypeUnsupported(
                f"A batch is multipart/mixed or application/json, not {printable(kind.encode())}."
            )
        headers.message(body)  # says that the destination is missing
        raise BodyInvalid("This request is neither a message nor a batch.")

    async def _judged(self, batch: list[Message | BridgeError]) -> list[Message | BridgeError]:
        judged: list[Message | BridgeError] = []
        for message in batch:
            try:
                judged.append(message if isinstance(message, BridgeError) else self._checked(message))
                if not isinstance(message, BridgeError) and message.compression is not None:
                    await asyncio.sleep(0)  # a thousand parts that each inflate to the limit must not stop the others
            except BridgeError as error:
                judged.append(error)
        return judged

    def _checked(self, message: Message) -> Message:
        """Make sure that consumers can take it: its headers as they travel, its body if it claims to be gzip."""
        check_size(message, max(HANDED_OUT_MAX, self._limits.headers))
        if message.compression is None:
            return message
        if message.compression.lower() != compression.GZIP:
            shown = printable(message.compression.encode())
            raise HeaderInvalid(f"x-oms-h-compression: gzip is allowed, not {shown}.")
        compression.inflate(message.body, self._limits.body)
        return message._replace(compression=compression.GZIP)

    def _delivered(self, pulled: Pulled, asked: Headers) -> Reply:
        message, coding = self._unpacked(pulled.message, asked.plain.get(b"accept-encoding", b""))
        headers: list[Pair] = encode(message)
        if pulled.receipt is not None:
            headers.append((b"x-oms-receipt", pulled.receipt.encode("ascii")))
            headers.append((b"x-oms-leaseuntil", b"%d" % pulled.lease_until))
        headers += coding
        headers.append(NO_STORE)
        return Reply(200, headers, message.body, undo=pulled.undo)

    def _unpacked(self, message: Message, accept: bytes) -> tuple[Message, list[Pair]]:
        """Where the consumer accepts gzip, HTTP's own content coding says what the field would."""
        if message.compression is None or not compression.accepts_gzip(accept):
            return compression.unpacked(message, self._limits.body), []
        return message._replace(compression=None), [(b"content-encoding", b"gzip"), (b"vary", b"accept-encoding")]


def _stored(produced: Produced) -> Reply:
    """Tell the producer where its message is."""
    message, stored, applied = produced
    headers: list[Pair] = [(b"x-oms-version", VERSION)]
    headers.append(_pair(b"x-oms-h-messageid", message.message_id or ""))
    headers.append(_same_pair(b"x-oms-h-storehost", message.store_host or ""))
    headers.append((b"x-oms-h-storetimestamp", b"%d" % (message.store_timestamp or 0)))
    if stored.partition is not None:
        headers.append((b"x-oms-h-partition", b"%d" % stored.partition))
    if stored.offset is not None:
        headers.append((b"x-oms-offset", b"%d" % stored.offset))
    if applied:
        headers.append((b"x-oms-applied", _shown(produced).encode("ascii")))
    return Reply(200, headers)


def _pair(name: bytes, text: str) -> Pair:
    extended, raw = encode_value(text)
    return name + b"*" if extended else name, raw


_same_pair = lru_cache(maxsize=16)(_pair)
"""For text that is the same in every answer."""


def _result(result: Produced | BridgeError) -> dict[str, object]:
    """Write one result of a batch: the same facts as `_stored`, or the problem document."""
    if isinstance(result, BridgeError):
        return problem.members(result)
    facts: dict[str, object] = {
        "status": 200,
        "messageId": result.message.message_id,
        "storeTimestamp": result.message.store_timestamp,
        "storeHost": result.message.store_host,
        "partition": result.stored.partition,
        "offset": result.stored.offset,
        "applied": _shown(result),
    }
    return {name: value for name, value in facts.items() if value is not None and value != ""}


def _shown(produced: Produced) -> str:
    return ",".join(f"{name}={how}" for name, how in produced.applied.items())
