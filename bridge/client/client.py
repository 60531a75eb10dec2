"""`Client`: the requests that a program can send to a bridge."""

import asyncio
import math
import secrets
import ssl
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import quote

import msgspec
from uuid_utils import uuid7

from bridge.client.batches_and_transactions import TIMEOUT_MS, ClientTransaction, ProduceBatcher, store_all
from bridge.client.message_types import check_types
from bridge.client.push_and_ack import AckMode, ReceiveOptions, Receiver, open_receiver
from bridge.client.request_sender import RequestSender, is_transient, parameter_header, parameter_headers, retry
from bridge.client.transport import (
    BridgeResponse,
    HttpTransport,
    Pair,
    ProduceResult,
    ReceivedMessage,
    Transport,
    read_applied,
    read_json_object,
    read_number_parameter,
    read_result,
    read_stored,
)
from bridge.errors import BodyTooLarge, BridgeError
from bridge.message import Message
from bridge.wire import jsonform, multipart
from bridge.wire.headers import VERSION, Headers, encode
from bridge.wire.stream_framings import decode_message

REQUESTS_MAX: Final = 128
"""Most produce requests under way, each on its own connection; others wait."""

_UNCHECKED_BODY: Final = 65_535
"""Bytes of a body that is sent without asking the bridge for its limit."""
_BATCH_MAX: Final = 100_000
_RECEIPTS_AS_HEADER: Final = 20
"""Receipts of one header, about 1 KiB; more are sent in the body."""
_OK: Final = 200
_CREATED: Final = 201
_PARTIAL: Final = 207
_EMPTY: Final = 204
_FORMS: Final = {"multipart": b"multipart/mixed", "ndjson": b"application/x-ndjson", "json": b"application/json"}
"""Media types of a callback's batches."""


class Client:
    """A client of one bridge. Use it as an asynchronous context manager.

    `url` is http://host:port or https://host:port. `verify` is for https: with an `ssl.SSLContext`, the client trusts a
    private authority or presents a certificate. `token_file` has the token that shows who the client is; it is read for
    each request, so that it may be replaced. `transport` replaces the network in tests.

    With `linger_ms`, concurrent calls of `produce` share a request: each waits up to so long for others, or until there
    are `batch` messages (1 to 100,000; more than the bridge's `limits.batch` are sent in parts). Raises `ValueError` if
    `url` is another kind of URL, or a number is out of range.

    With `retry_ms`, a message that was not stored, or whose outcome is unknown, is repeated for up to so long.
    Each message has a messageId then, by which the bridge recognizes it: it is stored once, unless the bridge is
    replaced meanwhile. A message that is repeated may come behind later ones.
    """

    def __init__(  # noqa: PLR0913 - options, by name
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        verify: ssl.SSLContext | bool = True,
        linger_ms: float | None = None,
        batch: int = 500,
        retry_ms: float = 0,
        token_file: Path | None = None,
        transport: Transport | None = None,
    ) -> None:
        times = (retry_ms, 0 if linger_ms is None else linger_ms)
        if not 1 <= batch <= _BATCH_MAX or not all(0 <= each < math.inf for each in times):
            raise ValueError(f"batch is 1 to {_BATCH_MAX}, and linger_ms and retry_ms are not negative.")
        self._transport = transport or HttpTransport(url, verify, token_file)
        self._create_sender = partial(RequestSender, url, self._transport)
        self._sender = self._create_sender()
        self._slots = asyncio.Semaphore(REQUESTS_MAX)
        self._body_max = _UNCHECKED_BODY
        self._batch = batch
        self._retry_seconds = retry_ms / 1000
        self._batcher = None if linger_ms is None else ProduceBatcher(self._produce_batch, linger_ms / 1000, batch)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._batcher is not None:
                await self._batcher.close()
        finally:
            await self._transport.close()

    async def produce(self, message: Message, *, require: Iterable[str] = ()) -> ProduceResult:
        """Store one message. `require` lists fields that the bridge must honour, as the specification names them.

        Raises any of `bridge.errors`; `bridge.client` says which of them mean that the message was not stored.
        Like all methods that take messages, it raises `TypeError` for a value of another type than `Message` says, such
        as a body that is not bytes. With `linger_ms` messages are stored in the order of the calls, except those with
        `require`, which are sent at once.
        """
        check_types(message)
        required = ",".join(require)
        if not self._retry_seconds:
            return await self._produce(message, required)
        message = _named(message)
        return await retry(lambda: self._produce(message, required), self._retry_seconds)

    async def _produce(self, message: Message, required: str) -> ProduceResult:
        if self._batcher is not None and not required:
            return await self._batcher.produce(message)
        pairs = encode(message)
        if required:
            pairs.append(parameter_header("require", required))
        response = await self._post_messages(pairs, message.body, (_OK,))
        headers = self._sender.read_headers(response)
        try:
            if _is_json(headers):
                return read_stored(read_json_object(response))
            return ProduceResult(
                message_id=headers.fields["message_id"],
                store_timestamp=headers.fields["store_timestamp"],
                store_host=headers.fields["store_host"],
                partition=headers.fields.get("partition"),
                offset=read_number_parameter(headers, "offset"),
                applied=read_applied(headers.parameters.get("applied", "")),
            )
        except (KeyError, AttributeError, BridgeError):
            raise self._sender.protocol_error() from None

    def transaction(
        self, transaction_id: str | None = None, *, timeout_ms: int = TIMEOUT_MS, check: str | None = None
    ) -> ClientTransaction:
        """Produce messages that become visible together, when the block is left; an exception rolls them back.

            async with client.transaction(check="https://shop.example/check") as transaction:
                await transaction.produce(message)
                database.commit()

        If the program dies, the bridge asks `check` after `timeout_ms` (1 to 3,600,000) whether to commit, or rolls
        back without one. A message, the commit and the rollback are repeated as `retry_ms` says. Leaving the block
        raises any of `bridge.errors`: `TransactionEnded` if the timeout has rolled the transaction back.
        """
        return ClientTransaction(self._prepare, self.end_transaction, transaction_id, timeout_ms, check)

    async def transactions(self) -> list[dict[str, Any]]:
        """Return the open transactions as the bridge lists them, the oldest first."""
        response = await self._sender.send("GET", "/v1/transactions", parameter_headers({}), (_OK,))
        try:
            listed = msgspec.json.decode(response.body, type=list[dict[str, Any]])
        except (ValueError, RecursionError):
            raise self._sender.protocol_error() from None
        return listed

    async def end_transaction(self, transaction_id: str, how: Literal["commit", "rollback"]) -> dict[str, Any]:
        """Commit a transaction or roll it back, whichever client began it. Returns it as the bridge describes it.

        Repeating it is harmless. Raises `TransactionUnknown`; `TransactionEnded` if it ended in the other way.
        """
        path = f"/v1/transactions/{quote(transaction_id, safe='')}/{how}"

        async def ending() -> BridgeResponse:
            return await self._sender.send("POST", path, parameter_headers({}), (_OK,))

        document = read_json_object(await retry(ending, self._retry_seconds))
        if not document:
            raise self._sender.protocol_error()
        return document

    async def _prepare(self, message: Message, parameters: Mapping[str, str]) -> str:
        check_types(message)
        message = _named(message)
        pairs = [*encode(message), *(parameter_header(name, text) for name, text in parameters.items())]
        await retry(lambda: self._post_messages(pairs, message.body, (_OK,)), self._retry_seconds)
        return str(message.message_id)

    async def produce_batch(
        self, messages: Sequence[Message], *, form: Literal["multipart", "json"] = "multipart"
    ) -> list[ProduceResult | BridgeError]:
        """Store several messages in one request. Returns one result or error for each message, in order.

        Raises any of `bridge.errors` if the request as a whole failed. With `retry_ms` the batch is repeated while it,
        or one of its messages, may succeed later.
        """
        if not messages:
            return []
        for message in messages:
            check_types(message)
        if not self._retry_seconds:
            return await self._produce_batch(messages, form)
        named = [_named(message) for message in messages]
        results: list[ProduceResult | BridgeError] = []

        async def attempt() -> None:
            results[:] = await self._produce_batch(named, form)
            for result in results:
                if isinstance(result, BridgeError) and is_transient(result):
                    raise result

        try:
            await retry(attempt, self._retry_seconds)
        except BridgeError:
            if not results:
                raise
        return results

    async def _produce_batch(
        self, messages: Sequence[Message], form: Literal["multipart", "json"] = "multipart"
    ) -> list[ProduceResult | BridgeError]:
        if form == "multipart":
            boundary = secrets.token_hex(16).encode("ascii")  # 128 random bits occur in no body
            kind, body = b"multipart/mixed; boundary=" + boundary, multipart.encode_parts(messages, boundary)
        else:
            kind, body = b"application/json", jsonform.encode_array(list(messages))
        pairs = [(b"x-oms-version", VERSION), (b"content-type", kind)]
        response = await self._post_messages(pairs, body, (_OK, _PARTIAL))
        try:
            results = [read_result(item) for item in msgspec.json.decode(response.body)]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise self._sender.protocol_error() from None
        if len(results) != len(messages):
            raise self._sender.protocol_error()
        return results

    async def produce_many(self, messages: Iterable[Message]) -> list[ProduceResult | BridgeError]:
        """Store any number of messages in batches, one after the other. Returns a result or error for each, in order.

        A batch has at most `batch` messages and 1 MiB. After an error that is not `Rejected` nothing more is sent: the
        other messages have the error `BackendUnavailable`.
        """
        if isinstance(messages, Sequence):
            for message in messages:  # before any is sent
                check_types(message)
        return await store_all(self.produce_batch, messages, self._batch)

    async def pull(  # noqa: PLR0913 - each is a header of the pull, by name
        self,
        source: str,
        group: str,
        *,
        ack: bool = True,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        request_id: str | None = None,
        receipt: str | None = None,
    ) -> ReceivedMessage | None:
        """Take one message of `source` for `group`, or wait up to `wait_ms` for one (the bridge waits 55,000 at most).

        With `ack` the message is delivered again unless its receipt is acknowledged before the lease ends. `receipt`
        acknowledges an earlier message in the same request. A repeated pull with the same `request_id` returns the same
        message.
        """
        parameters = {"source": source, "consumerid": group, "ack": str(ack).lower(), "waitmills": str(wait_ms)}
        optional = {"leasemills": lease_ms, "requestid": request_id, "receipt": receipt}
        parameters |= {name: str(value) for name, value in optional.items() if value is not None}
        response = await self._sender.send(
            "GET", "/v1/messages", parameter_headers(parameters), (_OK, _EMPTY), wait=wait_ms / 1000
        )
        if response.status == _EMPTY:
            return None
        headers = self._sender.read_headers(response)
        try:
            message = decode_message(response.body) if _is_json(headers) else headers.message(response.body)
            lease_until = read_number_parameter(headers, "leaseuntil")
        except BridgeError:
            raise self._sender.protocol_error() from None
        return ReceivedMessage(message, headers.parameters.get("receipt"), lease_until, message.delivery_count or 1)

    def push(  # noqa: PLR0913 - each is a header of the stream, or when to acknowledge, by name
        self,
        source: str,
        group: str,
        *,
        ack: bool = True,
        auto_ack: bool = True,
        lease_ms: int = 30_000,
        credit: int | None = None,
        max_messages: int | None = None,
        wait_ms: int | None = None,
    ) -> AbstractAsyncContextManager[Receiver]:
        """Receive the messages of `source` for `group` as they come.

            async with client.push("orders", "billing") as messages:
                async for received in messages:
                    handle(received.message)

        A message is acknowledged when the loop requests the next one, and when the block is left without an exception.
        An exception gives the current message back at once. With `auto_ack=False` the program calls `Client.ack`, for
        handlers that run concurrently. With `ack=False` a message is acknowledged before it is handed out ("at most
        once").

        Leases are renewed during the block, `lease_ms` at a time, so a handler may take any time. `credit` (1 to 1000)
        limits the messages on their way to the program; by default the bridge chooses it: 64, or as many as were
        acknowledged in the last 0.1 s. The iteration ends after `max_messages`, or after `wait_ms` without a message.

        Entering the block raises any of `bridge.errors`. After that, a lost connection, a bridge that drains and a 503
        are logged, and the stream reopens without limit; unacknowledged messages are delivered again, the current one
        included. Other errors are raised when the next message is requested, and so is an acknowledgement that was
        refused. An acknowledgement that does not reach the bridge is repeated; after 5 s, leaving the block raises it.
        """
        ack_mode = AckMode.FIRST if not ack else AckMode.AUTO if auto_ack else AckMode.MANUAL
        options = ReceiveOptions(source, group, ack_mode, lease_ms, credit, max_messages, wait_ms)
        return open_receiver(self, self._create_sender, options)

    async def ack(self, *receipts: str) -> None:
        """Settle messages permanently. Repeating it is harmless. Raises `LeaseEnded` if one may be delivered again."""
        await self._settle("ack", receipts)

    async def nack(self, *receipts: str, delay_ms: int = 0) -> None:
        """Give messages back, to be delivered again after `delay_ms`."""
        await self._settle("nack", receipts, delaymills=str(delay_ms))

    async def extend(self, *receipts: str, lease_ms: int) -> None:
        """Make the leases end `lease_ms` from now."""
        await self._settle("extend", receipts, leasemills=str(lease_ms))

    async def capabilities(self, destination: str | None = None) -> dict[str, Any]:
        """Return what the bridge and its backend support, field by field."""
        parameters = {} if destination is None else {"source": destination}
        response = await self._sender.send("GET", "/v1/capabilities", parameter_headers(parameters), (_OK,))
        document = read_json_object(response)
        if not document:
            raise self._sender.protocol_error()
        return document

    async def register_callback(  # noqa: PLR0913 - each is a header of the registration, by name
        self,
        source: str,
        group: str,
        url: str,
        *,
        credit: int | None = None,
        max_messages: int | None = None,
        form: Literal["multipart", "ndjson", "json"] = "multipart",
    ) -> dict[str, Any]:
        """Have the messages of `source` for `group` posted to `url`. Returns the registration as the bridge lists it.

        Registering replaces an earlier registration of the group. `credit` (1 to 1000; the bridge's default is 64)
        limits the POSTs in flight. With `max_messages` (1 to 1000) each POST is a batch of up to so many messages, in
        the given form. Raises any of `bridge.errors`: `CallbackRefused` if the settings do not allow the URL.
        """
        parameters = {"source": source, "consumerid": group, "callbackurl": url}
        optional = {"credit": credit, "maxmessages": max_messages}
        parameters |= {name: str(value) for name, value in optional.items() if value is not None}
        pairs = [*parameter_headers(parameters), (b"accept", _FORMS[form])]
        response = await self._sender.send("POST", "/v1/push", pairs, (_OK, _CREATED))
        registration = read_json_object(response)
        if not registration:
            raise self._sender.protocol_error()
        return registration

    async def stop_callback(self, source: str, group: str) -> None:
        """Post no more messages of `source` for `group`. Harmless if there is no registration."""
        pairs = parameter_headers({"source": source, "consumerid": group, "callbackurl": ""})
        await self._sender.send("POST", "/v1/push", pairs, (_EMPTY,))

    async def _settle(self, action: str, receipts: Sequence[str], **parameters: str) -> None:
        if len(receipts) <= _RECEIPTS_AS_HEADER:
            pairs, body = parameter_headers({"receipt": ",".join(receipts), **parameters}), b""
        else:
            pairs = [*parameter_headers(parameters), (b"content-type", b"application/json")]
            body = msgspec.json.encode({"receipts": receipts})
        await self._sender.send("POST", f"/v1/{action}", pairs, (_EMPTY,), body=body)

    async def _post_messages(self, pairs: list[Pair], body: bytes, expected: tuple[int, ...]) -> BridgeResponse:
        await self._check_size(len(body))
        async with self._slots:
            return await self._sender.send("POST", "/v1/messages", pairs, expected, body=body)

    async def _check_size(self, size: int) -> None:
        """Raise `BodyTooLarge` before any byte is sent.

        A bridge answers 413 while the body is on its way, and closes the connection; its answer may be lost with it.
        """
        if size <= self._body_max:
            return
        limits = (await self.capabilities()).get("limits")
        limit = limits.get("body") if isinstance(limits, dict) else None
        self._body_max = limit if isinstance(limit, int) else size
        if size > self._body_max:
            raise BodyTooLarge(f"The body has {size} bytes; the bridge allows {limit}.")


def _is_json(headers: Headers) -> bool:
    """Whether the body of a response has what is usually in its headers: not every client could read those."""
    return headers.parameters.get("form") == "json"


def _named(message: Message) -> Message:
    """Return the message with a messageId, by which the bridge knows it again."""
    return message if message.message_id is not None else message._replace(message_id=str(uuid7()))
