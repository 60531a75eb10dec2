import asyncio
import gzip
import json
from collections.abc import Callable
from typing import Literal

import httpx
import pytest

from bridge.client import RESPONSE_SECONDS, Client, ProduceResult
from bridge.errors import (
    BackendUnavailable,
    BodyTooLarge,
    BridgeError,
    DestinationUnknown,
    Draining,
    FieldUnsupported,
    HeaderInvalid,
    LeaseEnded,
    OutcomeUnknown,
    QuotaExceeded,
    Rejected,
    TooManyInFlight,
    encode_problem,
    problem_members,
)
from bridge.long_work import run_at_once
from bridge.message import Message
from bridge.wire import jsonform, multipart
from bridge.wire.headers import Headers, encode, parse
from tests.mock_transport import MockTransport

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
    return Client("http://bridge:8080", transport=MockTransport(handler))


def refusing(error: BridgeError) -> Recorder:
    pairs, body = encode_problem(error)
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
    assert receipt == ProduceResult("m1", 1700000000000, "bridge:8080", 3, 42, applied)
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


async def test_an_error_comes_back_as_it_was_raised(subtests: pytest.Subtests) -> None:
    cases: list[BridgeError] = [
        DestinationUnknown("no such destination"),
        FieldUnsupported("no priority here"),
        BodyTooLarge("too large"),
        QuotaExceeded("slow down", retry_after=7),
        TooManyInFlight("full", retry_after=3),
        OutcomeUnknown("no answer"),
    ]
    for error in cases:
        with subtests.test(error=error):
            async with client(refusing(error)) as bridge:
                with pytest.raises(type(error)) as failure:
                    await bridge.produce(Message("orders"))
            assert (failure.value.detail, failure.value.retry_after) == (error.detail, error.retry_after)


async def test_a_refusal_without_a_document_still_says_whether_a_retry_is_safe(subtests: pytest.Subtests) -> None:
    cases: list[tuple[int, Pairs, type[BridgeError]]] = [
        (404, [], Rejected),
        (404, [(b"x-oms-error", b"destination-unknown")], DestinationUnknown),
        (502, [], OutcomeUnknown),
        (503, [], OutcomeUnknown),
        (503, [(b"x-oms-retry-safe", b"true")], BackendUnavailable),
        (503, [(b"x-oms-retry-safe", b"true"), (b"x-oms-error", b"draining")], BridgeError),
    ]
    for status, headers, kind in cases:
        with subtests.test(status=status, headers=headers, kind=kind):
            for content in (b"<html>", b"[1]", b"", b"[" * 100_000):
                async with client(Recorder(status, headers, content)) as bridge:
                    with pytest.raises(kind):
                        await bridge.produce(Message("orders"))


async def test_an_answer_that_cannot_be_read_never_says_not_stored(subtests: pytest.Subtests) -> None:
    cases: list[tuple[int, Pairs]] = [
        (200, []),
        (200, STORED[:-1]),
        (200, [*STORED, (b"x-oms-h-partition", b"x")]),
        (200, [*STORED, (b"x-oms-offset", b"-1")]),
        (200, [*STORED, STORED[1]]),
        (204, STORED),
        (301, [(b"location", b"http://elsewhere/")]),
    ]
    for status, headers in cases:
        with subtests.test(status=status, headers=headers):
            async with client(Recorder(status, headers)) as bridge:
                with pytest.raises(OutcomeUnknown):
                    await bridge.produce(Message("orders"))


async def test_a_batch_travels_in_either_form_and_every_message_has_its_result() -> None:
    messages = [Message("orders", b"1", message_key="k"), Message("orders", b"--\r\n"), Message("orders", b"3")]
    stored = {"status": 200, "messageId": "m1", "storeTimestamp": 1, "storeHost": "h"}
    reply = [
        stored | {"partition": 3, "offset": 42, "applied": "messageKey=native"},
        problem_members(DestinationUnknown("no such destination")),
        stored,
    ]
    recorder = Recorder(207, [(b"content-type", b"application/json")], json.dumps(reply).encode())
    async with client(recorder) as bridge:
        for form in FORMS:
            first, second, third = await bridge.produce_batch(messages, form=form)
            assert first == ProduceResult("m1", 1, "h", 3, 42, {"messageKey": "native"})
            assert isinstance(second, DestinationUnknown)
            assert third == ProduceResult("m1", 1, "h", None, None, {})

    parts, array = recorder.requests
    boundary = multipart.boundary_of(parts.headers["content-type"])
    assert run_at_once(multipart.decode(parts.content, boundary, 10, 1000)) == messages
    assert array.headers["content-type"] == "application/json"
    assert run_at_once(jsonform.decode_array(array.content, 10)) == messages
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


async def test_results_that_cannot_be_read_leave_the_outcome_unknown(subtests: pytest.Subtests) -> None:
    for content in (b"", b"{}", b"[]", b"[1]", b"[" * 100_000, b'[{"status": 200}]', b'[{"status": "x"}]', b"null"):
        with subtests.test(content=content):
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
    assert request.extensions["timeout"]["read"] == RESPONSE_SECONDS + 60
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


async def test_a_delivery_that_cannot_be_read_is_no_rejection(subtests: pytest.Subtests) -> None:
    cases: list[Pairs] = [
        [],
        [(b"x-oms-h-destination", b"a"), (b"x-oms-leaseuntil", b"x")],
        [(b"x-oms-nonsense", b"1")],
    ]
    for headers in cases:
        with subtests.test(headers=headers):
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


async def test_a_control_character_is_refused_before_anything_is_sent(subtests: pytest.Subtests) -> None:
    for group in ("a\r\nx-oms-ack: false", "a\0", "\x7f"):
        with subtests.test(group=group):
            recorder = Recorder(204)
            async with client(recorder) as bridge:
                with pytest.raises(HeaderInvalid, match="x-oms-consumerid"):
                    await bridge.pull("orders", group)
            assert recorder.requests == []


def test_what_is_no_url_of_a_bridge(subtests: pytest.Subtests) -> None:
    for url in ("", "bridge:8080", "ftp://bridge", "http://", "http://u:p@bridge", "http://a/path", "\0"):
        with subtests.test(url=url), pytest.raises(ValueError, match="http://host:port"):
            Client(url)


async def test_with_linger_concurrent_calls_are_one_request_and_leaving_sends_what_waits() -> None:
    bodies: list[list[bytes]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if "x-oms-require" in request.headers:
            return httpx.Response(200, headers=STORED)
        batch = run_at_once(
            multipart.decode(request.content, multipart.boundary_of(request.headers["content-type"]), 10, 1000)
        )
        bodies.append([each.body for each in batch if isinstance(each, Message)])
        result = {"status": 200, "messageId": "m1", "storeTimestamp": 1, "storeHost": "h"}
        return httpx.Response(200, json=[result] * len(batch))

    bridge = Client("http://bridge:8080", linger_ms=60_000, batch=2, transport=MockTransport(answer))
    async with bridge:
        await asyncio.gather(*(bridge.produce(Message("orders", b"%d" % n)) for n in range(4)))
        await bridge.produce(Message("orders"), require=["priority"])
        await bridge.produce_many(Message("orders", b"%d" % n) for n in range(3))
        last = asyncio.create_task(bridge.produce(Message("orders", b"last")))
        await asyncio.sleep(0)
    assert (await last).message_id == "m1"
    assert bodies == [[b"0", b"1"], [b"2", b"3"], [b"0", b"1"], [b"2"], [b"last"]]


async def test_a_callback_is_registered_with_what_is_named_and_stopped() -> None:
    recorder = Recorder(201, content=b'{"source": "orders", "maxMessages": 100}')
    async with client(recorder) as bridge:
        registration = await bridge.register_callback("orders", "app", "http://h/in", max_messages=100, form="ndjson")
        assert registration == {"source": "orders", "maxMessages": 100}
    asked = {"version": "1.0.0", "source": "orders", "consumerid": "app", "callbackurl": "http://h/in"}
    assert recorder.headers.parameters == {**asked, "maxmessages": "100"}
    assert recorder.headers.plain[b"accept"] == b"application/x-ndjson"
    stopped = Recorder(204)
    async with client(stopped) as bridge:
        await bridge.stop_callback("orders", "app")
    assert stopped.headers.parameters == {**asked, "callbackurl": ""}
    async with client(Recorder(201, content=b"[]")) as bridge:
        with pytest.raises(BridgeError):
            await bridge.register_callback("orders", "app", "http://h/in", credit=1)


async def test_a_batch_is_repeated_with_the_same_ids_until_all_of_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.client.request_sender.FIRST_DELAY", 0)
    ids: list[list[str | None]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        batch = run_at_once(jsonform.decode_array(request.content, 10))
        ids.append([message.message_id for message in batch if isinstance(message, Message)])
        results: list[object] = [
            {"status": 200, "messageId": name, "storeTimestamp": 1, "storeHost": "h"} for name in ids[-1]
        ]
        if len(ids) == 1:
            headers, body = encode_problem(Draining("stopping"))
            return httpx.Response(503, headers=headers, content=body)
        if len(ids) == 2:
            results[1] = problem_members(BackendUnavailable("away"))
        results[2] = problem_members(QuotaExceeded("too many", retry_after=1))
        return httpx.Response(207, json=results)

    sender = Client("http://bridge:8080", retry_ms=60_000, transport=MockTransport(answer))
    results = await sender.produce_batch([Message("orders", message_id=name) for name in ("a", None, "c")], form="json")
    assert ids[0] == ids[1] == ids[2]
    assert len(ids) == 3
    assert None not in ids[0]
    assert [type(result) for result in results] == [ProduceResult, ProduceResult, QuotaExceeded]
