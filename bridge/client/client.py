"""`Client`: what a program may ask of a bridge."""

import json
import secrets
import ssl
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, Literal, Self

import httpx

from bridge.client.answers import Delivery, Receipt, applied, json_object, number, result
from bridge.client.connection import Connection, parameter, parameters
from bridge.client.messages import Messages, Settling, Terms, receiving
from bridge.errors import BodyTooLarge, BridgeError
from bridge.message import Message
from bridge.wire import jsonform, multipart
from bridge.wire.headers import VERSION, encode

_FIRST_WINDOW: Final = 65_535
_OK: Final = 200
_PARTIAL: Final = 207
_NONE: Final = 204


class Client:
    """One connection to a bridge, HTTP/2 from its first byte. Use it as an asynchronous context manager.

    `url` is http://host:port or https://host:port. `verify` is for https: an `ssl.SSLContext` trusts a private
    authority or carries a client's certificate. `transport` replaces the network in tests.
    Raises `ValueError` for another kind of URL.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        # made once: reading the authorities takes 19 ms
        context = verify if isinstance(verify, ssl.SSLContext) else httpx.create_ssl_context(verify, trust_env=False)
        self._connect = partial(Connection, url, verify=context, transport=transport)
        self._connection = self._connect()
        self._largest = _FIRST_WINDOW

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    async def produce(self, message: Message, *, require: Iterable[str] = ()) -> Receipt:
        """Store one message. `require` names fields, as the specification writes them, that must be honoured.

        Raises any of `bridge.errors`; see the package for what each says of the message.
        """
        pairs = encode(message)
        if wanted := ",".join(require):
            pairs.append(parameter("require", wanted))
        await self._check_size(len(message.body))
        response = await self._connection.send("POST", "/v1/messages", pairs, (_OK,), body=message.body)
        headers = self._connection.read(response)
        try:
            return Receipt(
                message_id=headers.fields["message_id"],
                store_timestamp=headers.fields["store_timestamp"],
                store_host=headers.fields["store_host"],
                partition=headers.fields.get("partition"),
                offset=number(headers, "offset"),
                applied=applied(headers.parameters.get("applied", "")),
            )
        except (KeyError, BridgeError):
            raise self._connection.unreadable() from None

    async def produce_batch(
        self, messages: Sequence[Message], *, form: Literal["multipart", "json"] = "multipart"
    ) -> list[Receipt | BridgeError]:
        """Store several messages in one request, each judged on its own: one result per message, in order.

        Raises any of `bridge.errors` when the request as a whole failed.
        """
        if not messages:
            return []
        if form == "multipart":
            boundary = secrets.token_hex(16).encode("ascii")  # 128 random bits occur in no body
            kind, body = b"multipart/mixed; boundary=" + boundary, multipart.encode_parts(messages, boundary)
        else:
            kind, body = b"application/json", jsonform.encode_array(list(messages))
        pairs = [(b"x-oms-version", VERSION), (b"content-type", kind)]
        await self._check_size(len(body))
        response = await self._connection.send("POST", "/v1/messages", pairs, (_OK, _PARTIAL), body=body)
        try:
            results = [result(item) for item in json.loads(response.content)]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise self._connection.unreadable() from None
        if len(results) != len(messages):
            raise self._connection.unreadable()
        return results

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
    ) -> Delivery | None:
        """Take one message of `source` for `group`, waiting up to `wait_ms` (the bridge caps it at 60,000).

        Under `ack` the message comes back unless its receipt is acknowledged before the lease ends. `receipt`
        acknowledges an earlier message on the way; `request_id` lets a repeated pull return the same message.
        """
        asked = {"source": source, "consumerid": group, "ack": str(ack).lower(), "waitmills": str(wait_ms)}
        optional = {"leasemills": lease_ms, "requestid": request_id, "receipt": receipt}
        asked |= {name: str(value) for name, value in optional.items() if value is not None}
        response = await self._connection.send(
            "GET", "/v1/messages", parameters(asked), (_OK, _NONE), wait=wait_ms / 1000
        )
        if response.status_code == _NONE:
            return None
        headers = self._connection.read(response)
        try:
            message = headers.message(response.content)
            lease_until = number(headers, "leaseuntil")
        except BridgeError:
            raise self._connection.unreadable() from None
        return Delivery(message, headers.parameters.get("receipt"), lease_until, message.delivery_count or 1)

    def push(  # noqa: PLR0913 - each is a header of the stream or says when to acknowledge, by name
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
    ) -> AbstractAsyncContextManager[Messages]:
        """Receive the messages of `source` for `group` as they come.

            async with client.push("orders", "billing") as messages:
                async for delivery in messages:
                    handle(delivery.message)

        A message is acknowledged when the next one is asked for, and when the block is left other than by an
        exception; an exception gives the one in hand back at once. `auto_ack=False` leaves it to you (`Client.ack`):
        for handlers that run at the same time. `ack=False` acknowledges before it hands out ("at most once").

        Leases renew while the block lives, `lease_ms` at a time. `credit` (1 to 1000, the bridge's 64 unless set) is
        how many messages may be on their way to you; a handler may take as long as it likes. The iteration ends after
        `max_messages`, or after `wait_ms` of silence.

        Entering the block raises any of `bridge.errors`. After that a lost connection, a bridge that drains and a 503
        are logged and the stream opens again, for as long as it takes: what was not acknowledged comes again, the
        message in hand too. Other errors are raised where the next message is asked for. So is an acknowledgement
        that was refused; one that found nobody is repeated, and raised when the block is left and 5 s did not help.
        """
        settling = Settling.BEFORE if not ack else Settling.AFTER if auto_ack else Settling.BY_HAND
        terms = Terms(source, group, settling, lease_ms, credit, max_messages, wait_ms)
        return receiving(self, self._connect, terms)

    async def ack(self, *receipts: str) -> None:
        """Settle for good. Twice is harmless. Raises `LeaseEnded` when the message may be delivered again."""
        await self._settle("ack", receipts)

    async def nack(self, *receipts: str, delay_ms: int = 0) -> None:
        """Give back; ready again after `delay_ms`."""
        await self._settle("nack", receipts, delaymills=str(delay_ms))

    async def extend(self, *receipts: str, lease_ms: int) -> None:
        """Let the leases last `lease_ms` from now."""
        await self._settle("extend", receipts, leasemills=str(lease_ms))

    async def capabilities(self, destination: str | None = None) -> dict[str, Any]:
        """Return what the bridge and its backend can do, field by field."""
        asked = {} if destination is None else {"source": destination}
        response = await self._connection.send("GET", "/v1/capabilities", parameters(asked), (_OK,))
        document = json_object(response)
        if not document:
            raise self._connection.unreadable()
        return document

    async def _settle(self, how: str, receipts: Sequence[str], **asked: str) -> None:
        pairs = parameters({"receipt": ",".join(receipts), **asked})
        await self._connection.send("POST", f"/v1/{how}", pairs, (_NONE,))

    async def _check_size(self, size: int) -> None:
        """Raise `BodyTooLarge` before a byte is sent.

        A bridge answers 413 while the body is still on its way; httpx would not read that before all is sent, and
        so wait in vain until its timeout. A body within HTTP/2's first window is sent whole in any case.
        """
        if size <= self._largest:
            return
        limits = (await self.capabilities()).get("limits")
        limit = limits.get("body") if isinstance(limits, dict) else None
        self._largest = limit if isinstance(limit, int) else size
        if size > self._largest:
            raise BodyTooLarge(f"The body has {size} bytes; the bridge allows {limit}.")
