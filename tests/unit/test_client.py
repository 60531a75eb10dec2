import asyncio
import gzip
import json
from collections.abc import Callable
from typing import Literal

import httpx
import pytest

from bridge.client import ANSWER_SECONDS, Client, Receipt
from bridge.errors import (
    BackendUnavailable,
    BodyTooLarge,
    BridgeError,
    DestinationUnknown,
    FieldUnsupported,
    HeaderInvalid,
    LeaseEnded,
    OutcomeUnknown,
    QuotaExceeded,
    Rejected,
    TooManyInFlight,
)
from bridge.message import Message
from bridge.wire import jsonform, multipart, problem
from bridge.wire.headers import Headers, encode, parse

Handler = Callable[[httpx.Request], httpx.Response]
Pairs = list[tuple[bytes, bytes]]

FORMS: tuple[Literal["multipart", "json"], ...] = ("multipart", "json")
STORED: Pairs = [
    (b"x-oms-version", b"1.0.0"),
    (b"x-oms-h-messageid", b"m1"),
    (b"x-oms-h-storetimestamp", b"1700000000000"),
    (b"x-oms-h-storehost", b"bridge:8080"),
]


class Recorder:
    """Answers every request with the same reply and keeps the requests."""

    def __init__(self, status: int, headers: Pairs | None = None, content: bytes = b"") -> None:
        self.requests: list[httpx.Request] = []
        self._reply = (status, headers or [], content)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        status, headers, content = self._reply
        return httpx.Response(status, headers=headers, content=content)

    @property
    def headers(self) -> Headers:
        (request,) = self.requests
        return parse(request.headers.raw)


def client(handler: Handler) -> Client:
    return Client("http://bridge:8080", transport=httpx.MockTransport(handler))


def refusing(error: BridgeError) -> Recorder:
    pairs, body = problem.encode(error)
    return Recorder(error.status, pairs, body)


async def test_produce_sends_the_message_and_reads_the_receipt() -> None:
    message = Message("orders", b"\0body", {"Größe": "ü\r\n"}, message_key="k", delay_time=5, content_type="a/b")
    recorder = Recorder(
        200,
        [
            *STORED,
            (b"x-oms-h-partition", b"3"),
            (b"x-oms-offset", b"42"),
            (b"x-oms-applied", b"delayTime=native, messageKey=emulated"),
        ],
    )
    async with client(recorder) as bridge:
        receipt = await bridge.produce(message, require=("delayTime", "priority"))
    applied = {"delayTime": "native", "messageKey": "emulated"}
    assert receipt == Receipt("m1", 1700000000000, "bridge:8080", 3, 42, applied)
    (request,) = recorder.requests
    assert (request.method, request.url.path) == ("POST", "/v1/messages")
    headers = recorder.headers
    headers.require_version()
    assert headers.parameters.pop("require") == "delayTime,priority"
    assert headers.message(request.content) == message


async def test_a_receipt_need_not_name_a_place() -> None:
    async with client(Recorder(200, STORED)) as bridge:
        receipt = await bridge.produce(Message("orders"))
    assert (receipt.partition, receipt.offset, receipt.applied) == (None, None, {})


@pytest.mark.parametrize(
    "error",
    [
        DestinationUnknown("no such destination"),
        FieldUnsupported("no priority here"),
        BodyTooLarge("too large"),
        QuotaExceeded("slow down", retry_after=7),
        TooManyInFlight("full", retry_after=3),
        OutcomeUnknown("no answer"),
    ],
    ids=lambda error: error.code,
)
async def test_an_error_comes_back_as_it_was_raised(error: BridgeError) -> None:
    async with client(refusing(error)) as bridge:
        with pytest.raises(type(error)) as failure:
            await bridge.produce(Message("orders"))
    assert (failure.value.detail, failure.value.retry_after) == (error.detail, error.retry_after)


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        (404, [], Rejected),
        (404, [(b"x-oms-error", b"destination-unknown")], DestinationUnknown),
        (502, [], OutcomeUnknown),
        (503, [], OutcomeUnknown),
        (503, [(b"x-oms-retry-safe", b"true")], BackendUnavailable),
        (503, [(b"x-oms-retry-safe", b"true"), (b"x-oms-error", b"draining")], BridgeError),
    ],
)
async def test_a_refusal_without_a_document_still_says_whether_a_retry_is_safe(
    status: int, headers: Pairs, kind: type[BridgeError]
) -> None:
    for content in (b"<html>", b"[1]", b"", b"[" * 100_000):
        async with client(Recorder(status, headers, content)) as bridge:
            with pytest.raises(kind):
                await bridge.produce(Message("orders"))


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, []),
        (200, STORED[:-1]),
        (200, [*STORED, (b"x-oms-h-partition", b"x")]),
        (200, [*STORED, (b"x-oms-offset", b"-1")]),
        (200, [*STORED, STORED[1]]),
        (204, STORED),
        (301, [(b"location", b"http://elsewhere/")]),
    ],
)
async def test_an_answer_that_cannot_be_read_never_says_not_stored(status: int, headers: Pairs) -> None:
    async with client(Recorder(status, headers)) as bridge:
        with pytest.raises(OutcomeUnknown):
            await bridge.produce(Message("orders"))


async def test_a_batch_travels_in_either_form_and_every_message_has_its_result() -> None:
    messages = [Message("orders", b"1", message_key="k"), Message("orders", b"--\r\n"), Message("orders", b"3")]
    stored = {"status": 200, "messageId": "m1", "storeTimestamp": 1, "storeHost": "h"}
    reply = [
        stored | {"partition": 3, "offset": 42, "applied": "messageKey=native"},
        problem.members(DestinationUnknown("no such destination")),
        stored,
    ]
    recorder = Recorder(207, [(b"content-type", b"application/json")], json.dumps(reply).encode())
    async with client(recorder) as bridge:
        for form in FORMS:
            first, second, third = await bridge.produce_batch(messages, form=form)
            assert first == Receipt("m1", 1, "h", 3, 42, {"messageKey": "native"})
            assert isinstance(second, DestinationUnknown)
            assert third == Receipt("m1", 1, "h", None, None, {})

    parts, array = recorder.requests
    boundary = multipart.boundary_of(parts.headers["content-type"])
    assert multipart.decode(parts.content, boundary, 10, 1000) == messages
    assert array.headers["content-type"] == "application/json"
    assert jsonform.decode_array(array.content, 10) == messages
    assert parts.headers["x-oms-version"] == array.headers["x-oms-version"] == "1.0.0"


async def test_a_body_beyond_the_limit_is_not_sent() -> None:
    asked: list[str] = []
    limit = 100_000

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.url.path} {len(request.content)}")
        if request.method == "GET":
            return httpx.Response(200, json={"limits": {"body": limit}})
        return httpx.Response(200, headers=STORED)

    async with client(answer) as bridge:
        await bridge.produce(Message("orders", bytes(65_535)))
        for size in (65_536, 100_000):
            await bridge.produce(Message("orders", bytes(size)))
        with pytest.raises(BodyTooLarge, match="has 100001 bytes; the bridge allows 100000"):
            await bridge.produce(Message("orders", bytes(100_001)))
        with pytest.raises(BodyTooLarge):
            await bridge.produce_batch([Message("orders", bytes(60_000))] * 2)
        limit = 200_000
        await bridge.produce(Message("orders", bytes(100_001)))
    ask, send = "/v1/capabilities 0", "/v1/messages"
    assert asked == [f"{send} 65535", ask, f"{send} 65536", f"{send} 100000", ask, ask, ask, f"{send} 100001"]


@pytest.mark.parametrize("document", [{"limits": {}}, {"limits": 5}, {"durable": True}])
async def test_a_bridge_that_names_no_limit_gets_every_body(document: dict[str, object]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=document) if request.method == "GET" else httpx.Response(200, headers=STORED)

    async with client(answer) as bridge:
        assert (await bridge.produce(Message("orders", bytes(9_000_000)))).message_id == "m1"


async def test_an_empty_batch_needs_no_request() -> None:
    recorder = Recorder(500)
    async with client(recorder) as bridge:
        assert await bridge.produce_batch([]) == []
    assert recorder.requests == []


async def test_a_batch_that_is_refused_as_a_whole_raises() -> None:
    async with client(refusing(BodyTooLarge("too many"))) as bridge:
        with pytest.raises(BodyTooLarge):
            await bridge.produce_batch([Message("orders")])


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"[1]", b'[{"status": 200}]', b'[{"status": "x"}]', b"null"])
async def test_results_that_cannot_be_read_leave_the_outcome_unknown(content: bytes) -> None:
    async with client(Recorder(200, content=content)) as bridge:
        with pytest.raises(OutcomeUnknown):
            await bridge.produce_batch([Message("orders")])


async def test_pull_asks_for_what_it_is_told_and_reads_the_delivery() -> None:
    message = Message("orders", b"body", {"A": "b"}, message_id="m1", delivery_count=2)
    lease: Pairs = [(b"x-oms-receipt", b"r2"), (b"x-oms-leaseuntil", b"1700000000000")]
    recorder = Recorder(200, encode(message) + lease, b"body")
    async with client(recorder) as bridge:
        delivery = await bridge.pull("orders", "billing", wait_ms=60_000, lease_ms=5000, request_id="q", receipt="r1")
    assert delivery == (message, "r2", 1700000000000, 2)
    (request,) = recorder.requests
    assert (request.method, request.url.path) == ("GET", "/v1/messages")
    assert request.extensions["timeout"]["read"] == ANSWER_SECONDS + 60
    assert recorder.headers.parameters == {
        "version": "1.0.0",
        "source": "orders",
        "consumerid": "billing",
        "ack": "true",
        "waitmills": "60000",
        "leasemills": "5000",
        "requestid": "q",
        "receipt": "r1",
    }


async def test_pull_without_ack_has_no_receipt_and_nothing_is_none() -> None:
    recorder = Recorder(200, encode(Message("orders")))
    async with client(recorder) as bridge:
        delivery = await bridge.pull("orders", "billing", ack=False)
    assert delivery == (Message("orders"), None, None, 1)
    asked = recorder.headers.parameters
    assert (asked["ack"], "leasemills" in asked, "receipt" in asked) == ("false", False, False)
    async with client(Recorder(204)) as bridge:
        assert await bridge.pull("orders", "billing") is None


async def test_a_compressed_body_arrives_plain() -> None:
    headers = [*encode(Message("orders")), (b"content-encoding", b"gzip")]
    async with client(Recorder(200, headers, gzip.compress(b"body"))) as bridge:
        delivery = await bridge.pull("orders", "billing")
    assert delivery is not None
    assert delivery.message.body == b"body"


@pytest.mark.parametrize(
    "headers", [[], [(b"x-oms-h-destination", b"a"), (b"x-oms-leaseuntil", b"x")], [(b"x-oms-nonsense", b"1")]]
)
async def test_a_delivery_that_cannot_be_read_is_no_rejection(headers: Pairs) -> None:
    async with client(Recorder(200, headers)) as bridge:
        with pytest.raises(OutcomeUnknown):
            await bridge.pull("orders", "billing")


async def test_settling() -> None:
    recorder = Recorder(204)
    async with client(recorder) as bridge:
        await bridge.ack("r1", "r2")
        await bridge.nack("r3", delay_ms=500)
        await bridge.extend("r4", lease_ms=9000)
    asked = [(r.method, r.url.path, parse(r.headers.raw).parameters) for r in recorder.requests]
    assert asked == [
        ("POST", "/v1/ack", {"version": "1.0.0", "receipt": "r1,r2"}),
        ("POST", "/v1/nack", {"version": "1.0.0", "receipt": "r3", "delaymills": "500"}),
        ("POST", "/v1/extend", {"version": "1.0.0", "receipt": "r4", "leasemills": "9000"}),
    ]
    async with client(refusing(LeaseEnded("too late"))) as bridge:
        with pytest.raises(LeaseEnded):
            await bridge.ack("r1")


async def test_capabilities() -> None:
    recorder = Recorder(200, content=b'{"durable": true}')
    async with client(recorder) as bridge:
        assert await bridge.capabilities("orders") == {"durable": True}
    assert recorder.headers.parameters == {"version": "1.0.0", "source": "orders"}
    async with client(Recorder(200, content=b"hello")) as bridge:
        with pytest.raises(OutcomeUnknown):
            await bridge.capabilities()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx.ConnectError("refused"), BackendUnavailable),
        (httpx.ConnectTimeout(""), BackendUnavailable),
        (httpx.PoolTimeout(""), BackendUnavailable),
        (httpx.WriteError("reset"), OutcomeUnknown),
        (httpx.ReadError("reset"), OutcomeUnknown),
        (httpx.ReadTimeout(""), OutcomeUnknown),
        (httpx.RemoteProtocolError("goaway"), OutcomeUnknown),
        (httpx.LocalProtocolError("closed"), OutcomeUnknown),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_only_what_was_certainly_never_sent_is_safe_to_repeat(error: Exception, kind: type[BridgeError]) -> None:
    def broken(_request: httpx.Request) -> httpx.Response:
        raise error

    async with client(broken) as bridge:
        with pytest.raises(kind, match="http://bridge:8080"):
            await bridge.produce(Message("orders"))


@pytest.mark.parametrize("group", ["a\r\nx-oms-ack: false", "a\0", "\x7f"])
async def test_a_control_character_is_refused_before_anything_is_sent(group: str) -> None:
    recorder = Recorder(204)
    async with client(recorder) as bridge:
        with pytest.raises(HeaderInvalid, match="x-oms-consumerid"):
            await bridge.pull("orders", group)
    assert recorder.requests == []


@pytest.mark.parametrize(
    "url", ["", "bridge:8080", "ftp://bridge", "http://", "http://u:p@bridge", "http://a/path", "\0"]
)
def test_what_is_no_url_of_a_bridge(url: str) -> None:
    with pytest.raises(ValueError, match="http://host:port"):
        Client(url)


async def test_it_speaks_http2_from_the_first_byte_past_any_proxy_and_notices_a_broken_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    received = bytearray()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend(await reader.readexactly(24))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with server, Client(f"http://127.0.0.1:{port}") as bridge:
        with pytest.raises(OutcomeUnknown):
            await bridge.produce(Message("orders"))
    assert received == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    async with Client(f"http://127.0.0.1:{port}") as bridge:
        with pytest.raises(BackendUnavailable):
            await bridge.produce(Message("orders"))
