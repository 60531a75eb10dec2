"""`POST /v1/messages`: produce one message or a batch. `POST /v1/destinations/…/messages`: produce by URL."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Final

from bridge.engine.engine import Engine
from bridge.engine.produced import Produced
from bridge.errors import (
    BodyInvalid,
    BodyTooLarge,
    BridgeError,
    ContentTypeUnsupported,
    HeaderInvalid,
    problem_members,
)
from bridge.http.incoming_webhook_rules import Rules, check_unsigned
from bridge.http.params import Requirements, parse_require, path_values, url_headers
from bridge.http.permitted_publisher import Publisher, permitted
from bridge.http.request_and_reply import NO_STORE, OMS_VERSION, BodyStream, Limits, Pair, Reply, Request, quoted
from bridge.http.transactions import TransactionPublisher
from bridge.identity.caller import Caller
from bridge.identity.rules import Operation
from bridge.long_work import Slicer, Steps, run_at_once
from bridge.message import Message
from bridge.wire import cloudevents, gzip_body, jsonform, multipart
from bridge.wire.header_text import encode_value, printable
from bridge.wire.headers import (
    CLIENT_HEADERS_MAX,
    Headers,
    check_fits_http,
    check_size,
    fits_http_bytes,
    largest_safe_size,
)

GZIP_AT_ONCE: Final = 16 << 10
"""Bytes of a gzip body that is inflated at once; it takes up to 10 ms."""
_PROPERTY: Final = 200
"""Bytes that a property takes besides its text."""
_HEAVY: Final = 20_000
"""Members or header lines of a batch above which its properties count in the budget of bytes."""
_MEMBER: Final = 4
"""Bytes of the shortest member or header line, with what separates it from the next one."""
_STEP: Final = 4
"""Messages that are checked in one step. One with as many headers as are allowed takes 0.5 to 1.1 ms."""
BATCH_INFLATED: Final = 16
"""Times `limits.body` that the gzip bodies of one batch may inflate to together. 700 bodies of 4 KiB inflated to
2.7 GiB, which took 6 s."""

KEY_MAX: Final = 255
"""Bytes of an idempotency key."""

_KEY_HEADER: Final = b"idempotency-key"
_NOTHING: Final = Requirements()
_SHORT_ID: Final = 255
"""Characters of a messageId that certainly fits in the headers of a reply."""
_JSON: Final = b"application/json"
_TEXT: Final[Pair] = (b"content-type", b"text/plain; charset=utf-8")


class ProduceEndpoint:
    """Builds messages from a request, publishes them, reports where they are stored."""

    def __init__(self, engine: Engine, limits: Limits, slicer: Slicer, rules: Rules) -> None:
        self._engine = engine
        self._limits = limits
        self._slicer = slicer
        self._rules = rules
        self._delivered_max = max(CLIENT_HEADERS_MAX, limits.headers)
        self._safe_size = largest_safe_size(self._delivered_max)
        self._decoding_heavy = asyncio.Lock()

    async def produce(self, request: Request) -> Reply:
        """Publish one message if `x-oms-h-destination` is set, else a batch, whose content type names its form."""
        headers = request.headers
        headers.require_version()
        if request.query:
            raise HeaderInvalid("A produce takes no query parameters: send headers.")
        require = parse_require(headers.parameters) if "require" in headers.parameters else _NOTHING
        if "destination" in headers.fields:
            destination = headers.fields["destination"]
            if (caller := request.caller) is not None and (refused := caller.refusal(Operation.PRODUCE, destination)):
                raise refused
            if self._rules:
                check_unsigned(self._rules, destination)
            if (mode := cloudevents.mode_of(headers.plain)) is not None:
                publishing = self._produce_event(mode, request, require, lambda of_event: of_event, _stored_reply)
            else:
                fits = request.header_size <= self._safe_size
                publishing = self._produce_one(request, headers, require, _stored_reply, fits=fits)
        else:
            publishing = self._produce_batch(request, self._decode_batch(headers, request.body), require, self._rules)
        del request  # nothing here holds the body meanwhile: see `Producer.produce`
        return await publishing

    async def produce_by_url(self, request: Request) -> Reply:
        """Publish one message whose destination, and perhaps its id, is in the path. Fields: query or headers.

        A signed challenge of a webhook's sender is answered instead.
        """
        now = self._engine.clock.wall()
        if (rules := self._rules.get(path_values(request.path).destination)) is not None:
            request = request._replace(headers=rules.apply(request.headers, request.body, now))
            if rules.verifier is not None and (challenge := rules.verifier.challenge(request.body)) is not None:
                return Reply(200, [OMS_VERSION, _TEXT, NO_STORE], challenge.encode("utf-8", "replace"))
        headers = url_headers(request, request.headers, now)
        require = parse_require(headers.parameters)
        if (mode := cloudevents.mode_of(headers.plain)) is not None:
            # The time of an event is known after it is read, and `expire` counts from it.
            complete = partial(url_headers, request._replace(body=b""), now=now)
            publishing = self._produce_event(mode, request, require, complete, _described_reply)
        else:
            publishing = self._produce_one(request, headers, require, _described_reply, fits=False)
        del request  # as above
        return await publishing

    def _publisher(self, headers: Headers, caller: Caller | None) -> Publisher:
        """Return where the messages of a request go. Raises `HeaderInvalid`."""
        if "transaction" not in headers.parameters:
            return permitted(self._engine, caller)
        return permitted(TransactionPublisher(self._engine.transactions, headers, caller), caller, Operation.TRANSACT)

    async def _produce_event(
        self,
        mode: cloudevents.Mode,
        request: Request,
        require: Requirements,
        complete: cloudevents.Complete,
        write: Callable[[Produced], Reply],
    ) -> Reply:
        """Publish one CloudEvent, or a batch of them."""
        headers = request.headers
        if mode is cloudevents.Mode.BINARY:
            headers = complete(cloudevents.read_binary(headers))
            publishing = self._produce_one(request, headers, require, write, fits=False)
        elif gzip_body.is_gzip(headers.plain.get(b"content-encoding")):
            raise ContentTypeUnsupported("content-encoding: events in JSON are not compressed.")
        elif mode is cloudevents.Mode.BATCHED:
            batch = cloudevents.read_batch(headers, request.body, self._limits.batch, complete)
            publishing = self._produce_batch(request, batch, require, {})
        else:
            event = cloudevents.read_structured(headers, request.body, complete)
            publishing = self._produce_read(request, event, require, write)
        del request  # as above
        return await publishing

    async def _produce_read(
        self, request: Request, reading: Steps[Message], require: Requirements, write: Callable[[Produced], Reply]
    ) -> Reply:
        """Publish the message that is read from the body."""
        validation = self._validate_read(reading, in_headers=require.headers)
        key, publisher, peer = (
            idempotency_key(request.headers),
            self._publisher(request.headers, request.caller),
            request.peer,
        )
        del request, reading  # as above
        publishing = publisher.produce([await self._slicer.run(validation)], require.fields, peer, key)
        return write(_only(await publishing))

    async def _produce_one(
        self,
        request: Request,
        headers: Headers,
        require: Requirements,
        write: Callable[[Produced], Reply],
        *,
        fits: bool,
    ) -> Reply:
        """Publish the body as one message. `fits`: consumers can certainly receive its headers."""
        message, publisher = headers.message(request.body), self._publisher(headers, request.caller)
        if require.headers:
            check_fits_http(message)
        key = idempotency_key(headers) if _KEY_HEADER in headers.plain else None
        if b"content-encoding" in headers.plain and gzip_body.is_gzip(headers.plain[b"content-encoding"]):
            message = message._replace(compression=gzip_body.GZIP)
        if not fits or message.compression is not None:
            validation = self._validate(message, _InflatedSize(self._limits.body))
            is_long = message.compression is not None and len(message.body) > GZIP_AT_ONCE
            message = await self._slicer.run(validation) if is_long else run_at_once(validation)
        publishing = publisher.produce([message], require.fields, request.peer, key)
        del request, message  # as above
        return write(_only(await publishing))

    async def _produce_batch(
        self, request: Request, decoding: Steps[list[Message | BridgeError]], require: Requirements, rules: Rules
    ) -> Reply:
        """Publish a batch. `rules`: of destinations that have settings."""
        validation = self.validate_all(decoding, rules, in_headers=require.headers, caller=request.caller)
        publisher = self._publisher(request.headers, request.caller)
        key, peer = idempotency_key(request.headers), request.peer
        validating = self._validated(validation, request)
        del request, decoding, validation  # as above
        publishing = publisher.produce(await validating, require.fields, peer, key)
        del validating
        results = await publishing
        failed = any(isinstance(result, BridgeError) for result in results)
        body = f"[{', '.join(map(write_result, results))}]".encode("ascii")
        return Reply(207 if failed else 200, [OMS_VERSION, (b"content-type", _JSON)], body)

    def _validated(
        self, validation: Steps[list[Message | BridgeError]], request: Request
    ) -> Awaitable[list[Message | BridgeError]]:
        if _is_heavy(request.body):
            return self._validate_heavy(validation, request.body_stream)
        return self._slicer.run(validation)

    async def _validate_heavy(
        self, validation: Steps[list[Message | BridgeError]], held: BodyStream
    ) -> list[Message | BridgeError]:
        """Decode one such batch at a time, and count its properties: 32 at once took 660 MiB."""
        async with self._decoding_heavy:
            batch = await self._slicer.run(validation)
            held.hold(size_of_properties(batch))
        return batch

    def _decode_batch(self, headers: Headers, body: bytes) -> Steps[list[Message | BridgeError]]:
        content_type = headers.plain.get(b"content-type", b"").decode("latin-1")
        media_type = content_type.partition(";")[0].strip().lower()
        if gzip_body.is_gzip(headers.plain.get(b"content-encoding")):
            raise ContentTypeUnsupported("content-encoding: a batch is not compressed; each of its messages may be.")
        if media_type == "multipart/mixed":
            boundary = multipart.boundary_of(content_type)
            return multipart.decode(body, boundary, self._limits.batch, self._limits.headers)
        if media_type == "application/json":
            return jsonform.decode_array(body, self._limits.batch)
        if media_type.startswith("multipart/"):
            shown = printable(media_type.encode())
            raise ContentTypeUnsupported(f"A batch is multipart/mixed or application/json, not {shown}.")
        headers.message(body)  # raises: the destination is missing
        raise BodyInvalid("This request is neither a message nor a batch.")

    def validate_all(
        self,
        decoding: Steps[list[Message | BridgeError]],
        rules: Rules,
        *,
        in_headers: bool = False,
        caller: Caller | None = None,
    ) -> Steps[list[Message | BridgeError]]:
        """Replace each message that cannot be published by its error. `rules` are of destinations with settings.

        `caller`: see `permitted`; a refusal comes first, so that it says nothing of the destination. `in_headers`:
        consumers must get its fields and properties as headers.
        """
        batch = yield from decoding
        inflated = _InflatedSize(self._limits.body)
        for index, message in enumerate(batch):
            if index % _STEP == 0:
                yield
            if isinstance(message, BridgeError):
                continue
            try:
                if caller is not None and (refused := caller.refusal(Operation.PRODUCE, message.destination)):
                    raise refused
                if rules:
                    check_unsigned(rules, message.destination)
                if in_headers:
                    check_fits_http(message)
                if message.compression is None:
                    check_size(message, self._delivered_max)
                else:
                    batch[index] = yield from self._validate(message, inflated)
            except BridgeError as error:
                batch[index] = error
        return batch

    def _validate_read(self, reading: Steps[Message], *, in_headers: bool) -> Steps[Message]:
        message = yield from reading
        if in_headers:
            check_fits_http(message)
        return (yield from self._validate(message, _InflatedSize(self._limits.body)))

    def _validate(self, message: Message, inflated: "_InflatedSize") -> Steps[Message]:
        """Check the size of the message's escaped headers, and that a gzip body inflates."""
        check_size(message, self._delivered_max)
        if message.compression is None:
            return message
        if message.compression.lower() != gzip_body.GZIP:
            shown = printable(message.compression.encode())
            raise HeaderInvalid(f"x-oms-h-compression must be gzip, not {shown}.")
        inflated.check()
        for piece in gzip_body.inflate(message.body, self._limits.body):
            inflated.add(len(piece))
            yield
        return message._replace(compression=gzip_body.GZIP)


def size_of_properties(batch: Iterable[Message | BridgeError]) -> int:
    """Return the bytes that the properties of messages take besides their text."""
    return _PROPERTY * sum(len(each.properties) for each in batch if isinstance(each, Message))


def _is_heavy(body: bytes) -> bool:
    """Whether a batch may have so many properties that its messages take much more memory than its body."""
    # Each has a colon: counted in 50 us for 115 kB; to count `":` and line feeds took 188.
    return len(body) > _MEMBER * _HEAVY and body.count(b":") > _HEAVY


class _InflatedSize:
    """Counts what the gzip bodies of one request inflate to, bytes."""

    def __init__(self, body_limit: int) -> None:
        self._limit = BATCH_INFLATED * body_limit
        self._size = 0

    def add(self, size: int) -> None:
        """Count a piece. Raises `BodyTooLarge` when all pieces together exceed the limit."""
        self._size += size
        self.check()

    def check(self) -> None:
        """Raise `BodyTooLarge` if the limit is exceeded: no other body is then inflated."""
        if self._size > self._limit:
            raise BodyTooLarge(
                f"x-oms-h-compression: the bodies of this batch inflate to more than {self._limit} bytes together."
            )


def idempotency_key(headers: Headers) -> str | None:
    """Return the value of `idempotency-key`, with or without the quotation marks of a structured field; None: none.

    Raises `HeaderInvalid`.
    """
    raw = headers.plain.get(_KEY_HEADER)
    if raw is None:
        return None
    if len(raw) > 1 and raw.startswith(b'"') and raw.endswith(b'"'):
        raw = raw[1:-1]
    key = raw.decode("latin-1")
    if not 0 < len(key) <= KEY_MAX or not (key.isascii() and key.isprintable()):
        raise HeaderInvalid(f"idempotency-key is a text of 1 to {KEY_MAX} printable ASCII characters.")
    return key


def _only(results: Sequence[Produced | BridgeError]) -> Produced:
    """Return the result of one message, or raise it."""
    [result] = results
    if isinstance(result, BridgeError):
        raise result
    return result


def _stored_reply(produced: Produced) -> Reply:
    """Write where a single message is stored: as headers, or as JSON if its id is too long for every client."""
    message_id, store_timestamp, store_host, stored, applied, duplicate, transaction = produced
    is_plain = message_id.isascii() and message_id.isprintable() and message_id.strip(" ") == message_id
    name_and_id = (b"x-oms-h-messageid", message_id.encode()) if is_plain else _pair(b"x-oms-h-messageid", message_id)
    headers: list[Pair] = [OMS_VERSION, name_and_id]
    if transaction is not None:
        headers.append(_pair(b"x-oms-h-transactionid", transaction))
    if store_timestamp:
        headers.append(_cached_pair(b"x-oms-h-storehost", store_host))
        headers.append((b"x-oms-h-storetimestamp", b"%d" % store_timestamp))
    if stored.partition is not None:
        headers.append((b"x-oms-h-partition", b"%d" % stored.partition))
    if stored.offset is not None:
        headers.append((b"x-oms-offset", b"%d" % stored.offset))
    if applied:
        headers.append(_cached_pair(b"x-oms-applied", applied.text))
    if duplicate:
        headers.append((b"x-oms-duplicate", b"true"))
    if (len(message_id) > _SHORT_ID or transaction is not None) and not fits_http_bytes(headers):
        headers = [OMS_VERSION, jsonform.FORM, (b"content-type", _JSON)]
        return Reply(200, headers, write_result(produced).encode("ascii"))
    return Reply(200, headers)


def _described_reply(produced: Produced) -> Reply:
    """Write where a message is stored as headers, and as JSON for producers that read no headers."""
    reply = _stored_reply(produced)
    if reply.body:
        return reply
    return reply._replace(
        headers=[*reply.headers, (b"content-type", _JSON)], body=write_result(produced).encode("ascii")
    )


def _pair(name: bytes, text: str) -> Pair:
    extended, raw = encode_value(text)
    return name + b"*" if extended else name, raw


_cached_pair = lru_cache(maxsize=64)(_pair)
"""For text that many replies share."""


def write_result(result: Produced | BridgeError) -> str:
    """Write one result of a batch as JSON: the same values as `_stored_reply`, or the problem document."""
    if isinstance(result, BridgeError):
        return json.dumps(problem_members(result))
    message_id, store_timestamp, store_host, (partition, offset), applied, duplicate, transaction = result
    text = f'{{"status": 200, "messageId": {quoted(message_id)}'
    if transaction is not None:
        text += f', "transactionId": {quoted(transaction)}'
    if store_timestamp:
        text += f', "storeTimestamp": {store_timestamp}, "storeHost": {quoted(store_host)}'
    if partition is not None:
        text += f', "partition": {partition}'
    if offset is not None:
        text += f', "offset": {offset}'
    if duplicate:
        text += ', "duplicate": true'
    return f'{text}, "applied": "{applied.text}"}}' if applied else text + "}"
