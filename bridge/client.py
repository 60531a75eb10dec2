"""A small asynchronous client: messages in, messages out, errors as the tree of `bridge.errors`.

It never retries: only the caller knows whether a message may be stored twice. Two promises hold whatever happens:
a `Rejected` or `NotStored` means that nothing was stored, an `OutcomeUnknown` that it may or may not have been.
"""

import json
import secrets
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Self

import httpx

from bridge import __version__
from bridge.errors import BackendUnavailable, BodyTooLarge, BridgeError, OutcomeUnknown
from bridge.message import LONG_MAX, Message
from bridge.wire import jsonform, multipart, problem
from bridge.wire.headers import VERSION, Headers, encode, parse, read_number
from bridge.wire.text import decode_value

Pair = tuple[bytes, bytes]

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 40.0
"""Above the 30 s after which the bridge itself gives up on its backend and says so."""

_FIRST_WINDOW: Final = 65_535
_OK: Final = 200
_PARTIAL: Final = 207
_NONE: Final = 204
_ERRORS: Final = 400
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Receipt(NamedTuple):
    """What the bridge says of a stored message. Times in ms since 1970 UTC."""

    message_id: str
    store_timestamp: int
    store_host: str
    partition: int | None
    offset: int | None
    """The backend's own position; None where it has none, or not yet (a delayed message)."""
    applied: Mapping[str, str]
    """Per optional field that the message carried: native, emulated or ignored."""


class Delivery(NamedTuple):
    """A message that was pulled."""

    message: Message
    receipt: str | None
    """What ends the lease; None when pulled without ack."""
    lease_until: int | None
    """When the lease ends, ms since 1970 UTC."""
    delivery_count: int
    """1 on the first delivery."""


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
        try:
            base = httpx.URL(url)
        except httpx.InvalidURL:
            base = httpx.URL()
        if base.scheme not in ("http", "https") or not base.host or base.userinfo or base.path != "/" or base.query:
            raise ValueError("The URL of a bridge is http://host:port or https://host:port.")
        self._url = str(base).rstrip("/")
        self._largest = _FIRST_WINDOW
        self._http = httpx.AsyncClient(
            base_url=base,
            http1=False,
            http2=True,
            verify=verify,
            transport=transport,
            trust_env=False,  # a sidecar on loopback is never behind the proxy that HTTP_PROXY names
            headers={"user-agent": f"openmessaging-bridge/{__version__}"},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def produce(self, message: Message, *, require: Iterable[str] = ()) -> Receipt:
        """Store one message. `require` names fields, as the specification writes them, that must be honoured.

        Raises any of `bridge.errors`; see the module for what each says of the message.
        """
        pairs = encode(message)
        if wanted := ",".join(require):
            pairs.append(_parameter("require", wanted))
        await self._check_size(len(message.body))
        response = await self._send("POST", "/v1/messages", pairs, (_OK,), body=message.body)
        headers = self._read(response)
        try:
            return Receipt(
                message_id=headers.fields["message_id"],
                store_timestamp=headers.fields["store_timestamp"],
                store_host=headers.fields["store_host"],
                partition=headers.fields.get("partition"),
                offset=_number(headers, "offset"),
                applied=_applied(headers.parameters.get("applied", "")),
            )
        except (KeyError, BridgeError):
            raise self._unreadable() from None

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
        response = await self._send("POST", "/v1/messages", pairs, (_OK, _PARTIAL), body=body)
        try:
            results = [_result(item) for item in json.loads(response.content)]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise self._unreadable() from None
        if len(results) != len(messages):
            raise self._unreadable()
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
        response = await self._send("GET", "/v1/messages", _parameters(asked), (_OK, _NONE), wait=wait_ms / 1000)
        if response.status_code == _NONE:
            return None
        headers = self._read(response)
        try:
            message = headers.message(response.content)
            lease_until = _number(headers, "leaseuntil")
        except BridgeError:
            raise self._unreadable() from None
        return Delivery(message, headers.parameters.get("receipt"), lease_until, message.delivery_count or 1)

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
        response = await self._send("GET", "/v1/capabilities", _parameters(asked), (_OK,))
        document = _json(response)
        if not document:
            raise self._unreadable()
        return document

    async def _settle(self, how: str, receipts: Sequence[str], **asked: str) -> None:
        pairs = _parameters({"receipt": ",".join(receipts), **asked})
        await self._send("POST", f"/v1/{how}", pairs, (_NONE,))

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

    async def _send(  # noqa: PLR0913 - the parts of one request
        self,
        method: str,
        path: str,
        pairs: list[Pair],
        expected: tuple[int, ...],
        *,
        body: bytes = b"",
        wait: float = 0,
    ) -> httpx.Response:
        timeout = httpx.Timeout(ANSWER_SECONDS + wait, connect=CONNECT_SECONDS)
        try:
            response = await self._http.request(method, path, headers=pairs, content=body, timeout=timeout)
        except _NEVER_SENT as error:
            raise BackendUnavailable(f"The bridge at {self._url} cannot be reached ({_what(error)}).") from error
        except httpx.HTTPError as error:
            raise OutcomeUnknown(
                f"The connection to {self._url} broke before the answer came ({_what(error)})."
            ) from error
        if response.status_code >= _ERRORS:
            raise _refusal(response)
        if response.status_code not in expected:
            raise self._unreadable()
        return response

    def _read(self, response: httpx.Response) -> Headers:
        try:
            return parse(response.headers.raw)
        except BridgeError:  # never as it is: a Rejected would promise that nothing was stored
            raise self._unreadable() from None

    def _unreadable(self) -> OutcomeUnknown:
        return OutcomeUnknown(f"What answered at {self._url} does not speak this binding.")


def _parameters(asked: Mapping[str, str]) -> list[Pair]:
    return [(b"x-oms-version", VERSION), *(_parameter(name, text) for name, text in asked.items())]


def _parameter(name: str, text: str) -> Pair:
    """Raise `HeaderInvalid` here: a line break would otherwise die inside HTTP/2 and look like a broken connection."""
    key, value = f"x-oms-{name}".encode("ascii"), text.encode("utf-8", "backslashreplace")
    decode_value(key, value)
    return key, value


def _refusal(response: httpx.Response) -> BridgeError:
    headers = response.headers
    said = {"code": headers.get("x-oms-error", ""), "retrySafe": headers.get("x-oms-retry-safe") == "true"}
    error = problem.decode(response.status_code, said | _json(response))
    after = headers.get("retry-after", "")
    error.retry_after = int(after) if after.isascii() and after.isdigit() else None
    return error


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        document = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _result(item: dict[str, Any]) -> Receipt | BridgeError:
    if item["status"] != _OK:
        return problem.decode(item["status"], item)
    return Receipt(
        item["messageId"],
        item["storeTimestamp"],
        item["storeHost"],
        item.get("partition"),
        item.get("offset"),
        _applied(item.get("applied", "")),
    )


def _applied(text: str) -> dict[str, str]:
    pairs = (item.partition("=") for item in text.split(",") if item)
    return {name.strip(): how.strip() for name, _, how in pairs}


def _number(headers: Headers, name: str) -> int | None:
    text = headers.parameters.get(name)
    return None if text is None else read_number(f"x-oms-{name}", text, LONG_MAX)


def _what(error: httpx.HTTPError) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")
