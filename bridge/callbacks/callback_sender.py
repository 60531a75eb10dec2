"""Signed POSTs to the URLs that clients registered: messages, and questions about open transactions; no redirects.

Nothing else calls such a URL. Connections that an endpoint leaves open serve the next POSTs, until they have been idle
for a while. Imported only if callbacks are on.
"""

import asyncio
import json
import logging
import re
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from uuid_utils import uuid7

from adapters.base import Transaction
from bridge import __version__
from bridge.allowed_targets import AddressPolicy, AllowedTargets, Origin, Target
from bridge.callbacks.connection import Dialer, EndpointConnection
from bridge.callbacks.registration import Registration
from bridge.callbacks.registry import DeliveryOptions
from bridge.callbacks.retry_policy import EndpointResponse, NoResponse, RequestBlocked, RequestFailed
from bridge.engine.clock import Clock
from bridge.engine.open_transactions import Decision
from bridge.errors import CallbackRefused, Rejected, visible_id
from bridge.long_work import Slicer
from bridge.message import Message
from bridge.signatures import Signer
from bridge.wire import cloudevents, jsonform
from bridge.wire.callback_batch import encode_batch
from bridge.wire.gzip_body import inflate_message
from bridge.wire.headers import VERSION, encode, fits_http

IDLE_SECONDS: Final = 4.0
"""How long a connection waits for its next POST: less than the 5 s after which Node and uvicorn close theirs."""
REUSABLE_MAX: Final = 256
"""Connections that may serve further POSTs; each connection beyond that serves one."""


class ConnectionPool:
    """Hands out connections: the one that was used last, or else a new one."""

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._idle: dict[Origin, list[EndpointConnection]] = {}
        """By origin, those that were used last at the end. Never an empty list."""
        self._open: set[EndpointConnection] = set()
        """All that may serve further POSTs, idle or not."""
        self._sweep: asyncio.TimerHandle | None = None

    def take_idle(self, origin: Origin) -> EndpointConnection | None:
        """Return an open connection that no POST uses; None if there is none."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if not idle:
                del self._idle[origin]
            if connection.usable:
                return connection
        return None

    async def connect(self, target: Target) -> EndpointConnection:
        """Open a connection. Raises `RequestBlocked` and `NoResponse`."""
        connection = await self._dialer.connect(target, lambda: EndpointConnection(self._open.discard))
        if connection.usable and len(self._open) < REUSABLE_MAX:
            self._open.add(connection)
        return connection

    def give_back(self, origin: Origin, connection: EndpointConnection) -> None:
        """Keep a connection for the next POST, if it can serve one."""
        if connection not in self._open:
            connection.abort()
        elif connection.usable:
            self._idle.setdefault(origin, []).append(connection)
            if self._sweep is None:
                self._sweep = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._close_idle)

    def close(self) -> None:
        """Close the idle connections."""
        if self._sweep is not None:
            self._sweep.cancel()
        for idle in self._idle.values():
            for connection in idle:
                connection.abort()
        self._idle.clear()

    def _close_idle(self) -> None:
        """Close what has waited `IDLE_SECONDS`, and wait for the connection that is next."""
        loop = asyncio.get_running_loop()
        now, self._sweep = loop.time(), None
        for origin, idle in list(self._idle.items()):
            for connection in idle:
                if now - connection.idle_since >= IDLE_SECONDS:
                    connection.abort()
            self._idle[origin] = [connection for connection in idle if connection.usable]
            if not self._idle[origin]:
                del self._idle[origin]
        if self._idle:
            oldest = min(idle[0].idle_since for idle in self._idle.values())
            self._sweep = loop.call_at(oldest + IDLE_SECONDS, self._close_idle)


Pair = tuple[bytes, bytes]

CONCURRENCY_MAX: Final = 256
"""Most POSTs in flight, each on its own connection."""
CONCURRENCY_PER_ORIGIN: Final = 64
"""Most POSTs in flight for one scheme, host and port, so that a slow endpoint does not block the others."""

_URLS_CACHED: Final = 1024
_NAMES_CACHED: Final = 1024
_HEAD: Final = (
    b"POST %b HTTP/1.1\r\n"
    b"host: %b\r\n"
    b"user-agent: openmessaging-bridge/%b\r\n"
    b"accept-encoding: identity\r\n"  # the body of a response is never inflated
)
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUES: Final = re.compile(rb"[\t -~]*")
_FRAMING_HEADERS: Final = frozenset(
    (b"connection", b"content-length", b"expect", b"host", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
"""Headers that change how a request is sent, so no message may set them."""
_JOIN_MAX: Final = 65536
"""Largest body that is copied behind the head of its request, bytes: one write is cheaper than two."""


class _Route(NamedTuple):
    """A checked URL, and the part of a request's head that is the same for all its POSTs."""

    target: Target
    head: bytes


class Egress:
    """Checks and sends POSTs.

    `timeout`, ms, limits one POST: resolving, connecting, TLS, request and response.
    """

    def __init__(self, targets: AllowedTargets, dialer: Dialer, timeout: int) -> None:
        self._targets = targets
        self._dialer = dialer
        self._timeout_seconds = timeout / 1000
        self._route = lru_cache(_URLS_CACHED)(self._find_route)
        self._pool = ConnectionPool(dialer)
        self._slots = asyncio.Semaphore(CONCURRENCY_MAX)
        self._origin_slots: WeakValueDictionary[Origin, asyncio.Semaphore] = WeakValueDictionary()

    def check_url(self, url: str) -> Target:
        """Parse a URL and check what needs no name resolution: its form, its host and port, and a literal address.

        Raises `HeaderInvalid` if the URL is not valid, `CallbackRefused` if the settings do not allow it.
        """
        target = self._targets.check(url)
        if reason := self._dialer.literal_refusal(target.host):
            raise CallbackRefused(f"x-oms-callbackurl: {reason}, and callbacks.networks does not allow it.")
        return target

    async def post(self, url: str, headers: list[Pair], body: bytes) -> EndpointResponse:
        """POST once; host, content-length, user-agent and accept-encoding are added here.

        Waiting for a slot does not count against the timeout, so a slow endpoint cannot fail the others. The wait is
        bounded: a slot is in use for at most the timeout.

        Raises `RequestBlocked` if nothing was sent, `NoResponse` if the endpoint may have received the message.
        """
        route = self._route(url)
        request = [route.head, *_encode_headers(headers), b"content-length: %d\r\n\r\n" % len(body)]
        target = route.target
        origin = target.origin
        if (origin_slots := self._origin_slots.get(origin)) is None:
            origin_slots = self._origin_slots[origin] = asyncio.Semaphore(CONCURRENCY_PER_ORIGIN)
        async with origin_slots, self._slots:
            try:
                return await self._post(target, _join(request, body))
            except TimeoutError:
                raise NoResponse(f"no response from {target.authority} within {self._timeout_seconds:g} s") from None

    async def close(self) -> None:
        """Close the idle connections. Call this after the last POST has ended or was cancelled."""
        self._pool.close()

    async def _post(self, target: Target, request: list[bytes]) -> EndpointResponse:
        """Send a request once, never again (RFC 9110 9.2.2).

        If an endpoint closes an idle connection while a POST is on its way, the result is unknown.
        """
        deadline = asyncio.get_running_loop().time() + self._timeout_seconds
        connection = self._pool.take_idle(target.origin)
        if connection is None:
            async with asyncio.timeout_at(deadline):
                connection = await self._pool.connect(target)
        try:
            response = await connection.post(request, deadline)
        except BaseException:
            connection.abort()
            raise
        self._pool.give_back(target.origin, connection)
        return response

    def _find_route(self, url: str) -> _Route:
        """Check a URL and prepare its requests. Only allowed URLs are cached."""
        try:
            target = self.check_url(url)
        except Rejected as error:
            raise RequestBlocked(error.detail) from None
        texts = (target.path, target.authority, __version__)
        return _Route(target, _HEAD % tuple(text.encode("ascii") for text in texts))


def _encode_headers(headers: list[Pair]) -> list[bytes]:
    """Return header lines. Refuses invalid names and values, and headers that frame a request."""
    if not _VALUES.fullmatch(b"".join([value for _, value in headers])):
        for name, value in headers:
            if not _VALUES.fullmatch(value):
                raise _blocked(name)
    return [b"%b: %b\r\n" % (_check_name(name), value) for name, value in headers]


@lru_cache(_NAMES_CACHED)
def _check_name(name: bytes) -> bytes:
    if not _NAME.fullmatch(name) or name.lower() in _FRAMING_HEADERS:
        raise _blocked(name)
    return name


def _blocked(name: bytes) -> RequestBlocked:
    return RequestBlocked(f"the header {name[:40]!r} cannot be sent")


def _join(head: list[bytes], body: bytes) -> list[bytes]:
    """Return a request as the parts to write."""
    return [b"".join([*head, body])] if len(body) <= _JOIN_MAX else [b"".join(head), body]


class CallbackSender:
    """Builds and sends the request of one delivery."""

    def __init__(self, egress: Egress, signer: Signer, clock: Clock) -> None:
        self._egress = egress
        self._signer = signer
        self._clock = clock

    async def __call__(self, registration: Registration, messages: Sequence[Message]) -> EndpointResponse:
        """Send one message, or a batch if the registration has batches, once. Raises `RequestBlocked`, `NoResponse`."""
        if registration.batch is None:
            (message,) = messages
            mode = registration.mode
            headers, body = (encode(message), message.body) if mode is None else cloudevents.encode(message, mode)
            if mode is None and not fits_http(message, headers):
                headers = [(b"x-oms-version", VERSION), jsonform.FORM, (b"content-type", jsonform.MEDIA_TYPE)]
                body = jsonform.encode(message)
            # Adapters set an id. If one is missing, a random id may cause a duplicate. An empty id, or one made from
            # the content, would be worse: the endpoint would drop the second of two messages as a repetition.
            webhook_id = message.message_id or str(uuid7())
        else:
            content_type, body = encode_batch(messages, registration.batch.form)
            headers = [(b"x-oms-version", VERSION), (b"content-type", content_type)]
            webhook_id = str(uuid7())
        headers += self._signer.headers(webhook_id, self._clock.wall() // 1000, body)
        return await self._egress.post(registration.url, headers, body)


class SenderOptions(NamedTuple):
    """The settings that sending callbacks needs; `docs/configuration.md` explains each. Milliseconds, bytes."""

    targets: Sequence[str]
    networks: Sequence[str]
    secrets: Sequence[str]
    ca: Path | None
    in_flight: int
    timeout: int
    lease: int
    body_max: int
    """Largest inflated body."""


def build_delivery_options(options: SenderOptions, clock: Clock, slicer: Slicer) -> DeliveryOptions:
    """Build the sender. Raises `OSError` if the `ca` file has no certificates, `ValueError` for the other settings."""
    dialer = Dialer(AddressPolicy.parse(options.networks), options.ca)
    egress = Egress(AllowedTargets.parse(options.targets), dialer, options.timeout)
    signer = Signer.parse(options.secrets)
    sender, check = CallbackSender(egress, signer, clock), TransactionCheck(egress, signer, clock)

    async def inflate(message: Message) -> Message:
        return await slicer.run_alone(inflate_message(message, options.body_max))

    return DeliveryOptions(egress.check_url, sender, inflate, options.in_flight, options.lease, egress.close, check)


_MEMBER: Final = "decision"
"""The member of the answer that says whether to commit."""

_log = logging.getLogger("bridge.callbacks")


class TransactionCheck:
    """Sends the question and reads the answer."""

    def __init__(self, egress: Egress, signer: Signer, clock: Clock) -> None:
        self._egress = egress
        self._signer = signer
        self._clock = clock

    async def __call__(self, transaction: Transaction) -> Decision:
        """Return the producer's decision; `UNKNOWN` if it has not answered with one."""
        document = {
            "transactionId": visible_id(transaction.id),
            "began": transaction.began,
            "messages": transaction.messages,
        }
        body = json.dumps(document).encode()
        headers = [(b"x-oms-version", VERSION), (b"content-type", b"application/json")]
        headers += self._signer.headers(str(uuid7()), self._clock.wall() // 1000, body)
        try:
            decision = read_decision(await self._egress.post(transaction.check or "", headers, body))
        except RequestFailed as error:
            _log.warning(
                "the check of a transaction failed", extra={"transaction": transaction.id, "reason": str(error)}
            )
            return Decision.UNKNOWN
        _log.info("a transaction was checked", extra={"transaction": transaction.id, "decision": decision.value})
        return decision


def read_decision(response: EndpointResponse) -> Decision:
    """Return the decision of an answer `{"decision": "commit"}` with status 200; `UNKNOWN` for any other answer."""
    if response.status != HTTPStatus.OK or response.json is None:
        return Decision.UNKNOWN
    try:
        return Decision(json.loads(response.json)[_MEMBER])
    except (ValueError, LookupError, TypeError, RecursionError):
        return Decision.UNKNOWN
