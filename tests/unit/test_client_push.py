"""The push iterator against a scripted bridge: every way in which a stream and its acknowledgements can fail."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from bridge.client import Client, Delivery, Messages
from bridge.client import acks as acks_module
from bridge.client.retry import FIRST, LONGEST, pause
from bridge.errors import (
    BackendUnavailable,
    BridgeError,
    DestinationInvalid,
    Draining,
    HeaderInvalid,
    Internal,
    LeaseEnded,
    OutcomeUnknown,
    QuotaExceeded,
    ReceiptInvalid,
    TooManyInFlight,
)
from bridge.message import Message
from bridge.wire import problem
from bridge.wire.headers import parse
from bridge.wire.streams import End, Line, decode_line, encode_line

PATIENCE = 20.0
"""Seconds after which a test that waits has failed."""

Step = bytes | End | Exception | Callable[[], Awaitable[object]]
Settle = Callable[[str, list[str]], Awaitable[BridgeError | None]]


def line(number: int) -> bytes:
    return encode_line(Line(Message("orders", b"%d" % number, delivery_count=1), f"r{number}", 5)) + b"\n"


OVER = End("waitmills")


async def for_ever() -> None:
    await asyncio.Event().wait()


async def granted(_how: str, _receipts: list[str]) -> BridgeError | None:
    return None


class Fake:
    """Answers each push with the next of its streams, or refuses it; settles as it is told."""

    def __init__(self, *streams: list[Step] | BridgeError | httpx.Response, settle: Settle = granted) -> None:
        self.streams = list(streams)
        self.asked: list[dict[str, str]] = []
        self.accepted: list[str] = []
        self.settled: list[tuple[str, list[str]]] = []
        self._settle = settle

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        asked = parse(request.headers.raw).parameters
        if request.url.path == "/v1/push":
            self.asked.append(asked)
            self.accepted.append(request.headers["accept"])
            stream = self.streams.pop(0)
            if isinstance(stream, httpx.Response):
                return stream
            if isinstance(stream, BridgeError):
                return refused(stream)
            return httpx.Response(200, headers={"content-type": "application/x-ndjson"}, content=self._play(stream))
        how, receipts = request.url.path.removeprefix("/v1/"), asked["receipt"].split(",")
        if (error := await self._settle(how, receipts)) is not None:
            return refused(error)
        self.settled.append((how, receipts))
        return httpx.Response(204)

    async def _play(self, steps: list[Step]) -> AsyncIterator[bytes]:
        sent = b""
        for step in steps:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, bytes):
                yield step
                sent += step
            elif isinstance(step, End):
                if step.detail is None:
                    await self._wait_until_settled(sent)
                yield encode_line(step) + b"\n"
            else:
                await step()

    async def _wait_until_settled(self, sent: bytes) -> None:
        """As a bridge does that ends a stream as asked."""
        lines = [decode_line(raw) for raw in sent.split(b"\n") if raw]
        receipts = {line.receipt for line in lines if isinstance(line, Line)}
        await until(lambda: receipts <= {receipt for _, some in self.settled for receipt in some})

    @property
    def acknowledged(self) -> list[str]:
        return [receipt for how, receipts in self.settled if how == "ack" for receipt in receipts]


def refused(error: BridgeError) -> httpx.Response:
    pairs, body = problem.encode(error)
    return httpx.Response(error.status, headers=pairs, content=body)


def client(fake: Fake) -> Client:
    return Client("http://bridge:8080", transport=httpx.MockTransport(fake))


def number(delivery: Delivery) -> int:
    return int(delivery.message.body)


async def numbers(messages: Messages) -> list[int]:
    async with asyncio.timeout(PATIENCE):
        return [number(delivery) async for delivery in messages]


async def break_down(bridge: Client, at: int) -> None:
    async with bridge.push("orders", "g") as messages:
        async for delivery in messages:
            _ = 1 / (at - number(delivery))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for is the code's own, it sets no event
            await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.client.retry.FIRST", 0.0)


async def test_it_asks_as_told_and_reads_lines_wherever_they_are_cut() -> None:
    raw = b"\n" + line(1) + b"\n\n" + line(2) + line(3)
    for size in (1, 7, len(raw)):
        fake = Fake([*(raw[start : start + size] for start in range(0, len(raw), size)), OVER])
        async with (
            client(fake) as bridge,
            bridge.push("orders", "billing", lease_ms=9000, credit=3, max_messages=8, wait_ms=50) as messages,
        ):
            assert await numbers(messages) == [1, 2, 3]
        assert fake.acknowledged == ["r1", "r2", "r3"]
        assert fake.accepted == ["application/x-ndjson"]
        assert fake.asked == [
            {
                "version": "1.0.0",
                "source": "orders",
                "consumerid": "billing",
                "ack": "true",
                "leasemills": "9000",
                "credit": "3",
                "waitmills": "50",
                "maxmessages": "8",
            }
        ]


async def test_a_delivery_is_what_a_pull_returns() -> None:
    fake = Fake([line(1), End("maxmessages")])
    async with client(fake) as bridge, bridge.push("orders", "g") as messages:
        delivery = await anext(messages)
        assert delivery == (Message("orders", b"1", delivery_count=1), "r1", 5, 1)


@pytest.mark.parametrize("why", ["maxmessages", "waitmills"])
async def test_an_end_as_asked_is_no_trouble(why: str, caplog: pytest.LogCaptureFixture) -> None:
    fake = Fake([line(1), End(why)])
    async with client(fake) as bridge, bridge.push("orders", "g", max_messages=1, wait_ms=9) as messages:
        assert await numbers(messages) == [1]
        assert await numbers(messages) == []
    assert caplog.records == []


async def test_a_message_is_acknowledged_when_the_next_is_asked_for_and_not_before() -> None:
    fake = Fake([line(1), line(2), for_ever])
    async with client(fake) as bridge, bridge.push("orders", "g") as messages:
        assert number(await anext(messages)) == 1
        await bridge.extend("r9", lease_ms=1)  # a request later still nothing is acknowledged
        assert fake.acknowledged == []
        assert number(await anext(messages)) == 2
        await until(lambda: fake.acknowledged == ["r1"])
    assert fake.acknowledged == ["r1", "r2"]


async def test_an_exception_leaves_the_message_in_hand_alone_and_sends_the_others() -> None:
    fake = Fake([line(1), line(2), line(3), for_ever])
    async with client(fake) as bridge:
        with pytest.raises(ZeroDivisionError):
            await break_down(bridge, at=2)
    assert fake.acknowledged == ["r1"]


async def test_leaving_the_loop_acknowledges_the_message_in_hand() -> None:
    fake = Fake([line(1), line(2), for_ever])
    async with client(fake) as bridge, bridge.push("orders", "g") as messages:
        async for _ in messages:
            break
    assert fake.acknowledged == ["r1"]


async def test_what_is_nacked_is_not_acknowledged() -> None:
    fake = Fake([line(1), line(2), OVER])
    async with client(fake) as bridge, bridge.push("orders", "g") as messages:
        await messages.nack(await anext(messages), delay_ms=7)
        assert await numbers(messages) == [2]
    assert fake.settled == [("nack", ["r1"]), ("ack", ["r2"])]


async def test_without_auto_ack_nothing_is_acknowledged_unasked() -> None:
    fake = Fake([line(1), line(2), OVER])
    async with client(fake) as bridge, bridge.push("orders", "g", auto_ack=False) as messages:
        first, second = await anext(messages), await anext(messages)
        await bridge.ack(second.receipt or "", first.receipt or "")
        assert await numbers(messages) == []
    assert fake.settled == [("ack", ["r2", "r1"])]


async def test_at_most_once_is_acknowledged_before_it_is_handed_out() -> None:
    fake = Fake([line(1) + line(2), OVER])
    async with client(fake) as bridge, bridge.push("orders", "g", ack=False) as messages:
        delivery = await anext(messages)
        assert (fake.settled, number(delivery), delivery.receipt) == ([("ack", ["r1", "r2"])], 1, None)
        assert delivery.lease_until is None
        with pytest.raises(ValueError, match="settled before"):
            await messages.nack(delivery)
        assert await numbers(messages) == [2]
    assert len(fake.settled) == 1


async def test_at_most_once_drops_what_came_too_late_to_be_acknowledged() -> None:
    asked = asyncio.Event()

    async def settle(_how: str, receipts: list[str]) -> BridgeError | None:
        asked.set()
        return LeaseEnded("over") if receipts == ["r1"] else None

    fake = Fake([line(1), asked.wait, httpx.ReadError("reset")], [line(2), OVER], settle=settle)
    async with client(fake) as bridge, bridge.push("orders", "g", ack=False) as messages:
        assert await numbers(messages) == [2]


async def test_a_handler_that_never_waits_does_not_hold_up_acknowledgements() -> None:
    fake = Fake([b"".join(line(n) for n in range(1, 500)), for_ever])
    async with client(fake) as bridge, bridge.push("orders", "g") as messages:
        for _ in range(400):
            await anext(messages)
        assert fake.acknowledged


async def test_acknowledgements_that_fall_due_meanwhile_share_a_request() -> None:
    first, go = asyncio.Event(), asyncio.Event()

    async def settle(_how: str, _receipts: list[str]) -> None:
        first.set()
        await go.wait()

    fake = Fake([b"".join(line(n) for n in range(1, 1200)), OVER], settle=settle)
    async with client(fake) as bridge, bridge.push("orders", "g") as messages:
        for _ in range(2):
            await anext(messages)
        await first.wait()
        for _ in range(1197):
            await anext(messages)
        go.set()
    assert [len(receipts) for _, receipts in fake.settled] == [1, 500, 500, 198]
    assert fake.acknowledged == [f"r{n}" for n in range(1, 1200)]


@pytest.mark.parametrize(
    "cut",
    [
        [httpx.ReadError("reset")],
        [httpx.RemoteProtocolError("goaway")],
        [],
        [line(9)[:-1]],
        [End("draining", "The bridge is stopping.")],
        [End("backend-unavailable", "The backend is gone.")],
        [End("outcome-unknown", "No answer.")],
    ],
    ids=["reset", "goaway", "no end", "half a line", "draining", "503", "504"],
)
async def test_a_stream_that_breaks_off_opens_again(cut: list[Step], caplog: pytest.LogCaptureFixture) -> None:
    fake = Fake(cut, [line(2), OVER])
    async with client(fake) as bridge, bridge.push("orders", "g") as messages:
        assert await numbers(messages) == [2]
    assert "opens again in" in caplog.text


async def test_it_opens_again_until_a_bridge_answers(caplog: pytest.LogCaptureFixture) -> None:
    gone = Draining("stopping", retry_after=0), TooManyInFlight("full", retry_after=0), OutcomeUnknown("late")
    fake = Fake([httpx.ReadError("reset")], *gone, [line(1), OVER])
    async with client(fake) as bridge, bridge.push("orders", "g") as messages:
        assert await numbers(messages) == [1]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 4


async def test_what_waits_when_its_stream_breaks_off_is_not_handed_out_for_it_comes_again() -> None:
    """Its lease ended with the stream: somebody else may have it."""
    broken = asyncio.Event()
    fake = Fake([line(1) + line(2) + line(3), broken.wait, httpx.ReadError("reset")], [line(2), line(3), OVER])
    async with client(fake) as bridge, bridge.push("orders", "g", max_messages=4) as messages:
        assert number(await anext(messages)) == 1
        broken.set()
        await until(lambda: len(fake.asked) == 2)
        assert await numbers(messages) == [2, 3]
    assert [asked["maxmessages"] for asked in fake.asked] == ["4", "3"]


async def test_a_break_after_the_last_message_ends_the_iteration() -> None:
    broken = asyncio.Event()
    fake = Fake([line(1), broken.wait, httpx.ReadError("reset")])
    async with client(fake) as bridge, bridge.push("orders", "g", max_messages=1) as messages:
        assert number(await anext(messages)) == 1
        broken.set()
        assert await numbers(messages) == []
    assert len(fake.asked) == 1


REFUSALS = [
    DestinationInvalid("no name"),
    QuotaExceeded("slow down", retry_after=1),
    Internal("a defect"),
]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: error.code)
async def test_what_no_repetition_mends_is_raised_where_the_next_message_is_asked_for(error: BridgeError) -> None:
    seconds: list[list[Step] | BridgeError] = [error, [line(2), End(error.code, error.detail)]]
    for second in seconds:
        fake = Fake([httpx.ReadError("reset")], second)
        async with client(fake) as bridge, bridge.push("orders", "g") as messages:
            with pytest.raises(type(error), match=error.detail):
                await numbers(messages)
        assert len(fake.asked) == 2


NO_STREAM = [
    httpx.Response(200, headers={"content-type": "text/html"}, content=b"<html>"),
    httpx.Response(301, headers={"location": "http://elsewhere/"}),
    httpx.Response(204),
    *(
        httpx.Response(200, headers={"content-type": "application/x-ndjson"}, content=content)
        for content in (b"<html>\n", b"[]\n", b'{"end": 5}\n', b'{"header": {}}\n', b"[" * 100_000 + b"\n")
    ),
    httpx.Response(
        200,
        headers={"content-type": "application/x-ndjson"},
        content=encode_line(Line(Message("orders"), None, 0)) + b"\n",
    ),
]


@pytest.mark.parametrize("answer", NO_STREAM, ids=range(len(NO_STREAM)))
async def test_what_is_no_push_stream_is_said_once_and_not_repeated(answer: httpx.Response) -> None:
    fake = Fake(answer)
    async with client(fake) as bridge:
        with pytest.raises(OutcomeUnknown, match="does not speak this binding"):
            async with bridge.push("orders", "g") as messages:
                await numbers(messages)
    assert len(fake.asked) == 1


@pytest.mark.parametrize("error", [*REFUSALS, Draining("stopping"), OutcomeUnknown("late")], ids=lambda e: e.code)
async def test_a_first_stream_that_does_not_open_is_an_error_of_entering(error: BridgeError) -> None:
    fake = Fake(error)
    async with client(fake) as bridge:
        with pytest.raises(type(error), match=error.detail):
            async with bridge.push("orders", "g"):
                pytest.fail("entered")


async def test_a_bridge_that_cannot_be_reached_is_an_error_of_entering() -> None:
    async with Client("http://127.0.0.1:1") as bridge:
        with pytest.raises(BackendUnavailable, match="cannot be reached"):
            async with bridge.push("orders", "g"):
                pytest.fail("entered")


async def test_a_head_that_does_not_come_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.client.connection.ANSWER_SECONDS", 0.01)

    async def silent(_request: httpx.Request) -> httpx.Response:
        await for_ever()
        raise AssertionError

    async with Client("http://bridge:8080", transport=httpx.MockTransport(silent)) as bridge:
        with pytest.raises(OutcomeUnknown, match="TimeoutError"):
            async with bridge.push("orders", "g"):
                pytest.fail("entered")


async def test_an_acknowledgement_that_found_nobody_is_repeated() -> None:
    troubles: list[Exception] = [
        httpx.ConnectError("refused"),
        httpx.ReadError("reset"),
        Draining("stopping", retry_after=0),
    ]

    async def settle(_how: str, _receipts: list[str]) -> BridgeError | None:
        if not troubles:
            return None
        trouble = troubles.pop(0)
        if isinstance(trouble, BridgeError):
            return trouble
        raise trouble

    fake = Fake([line(1), line(2), for_ever], settle=settle)
    async with client(fake) as bridge, bridge.push("orders", "g") as messages:
        await anext(messages)
        await anext(messages)
        await until(lambda: fake.acknowledged == ["r1"])
    assert (fake.acknowledged, troubles) == (["r1", "r2"], [])


@pytest.mark.parametrize("error", [LeaseEnded("over"), ReceiptInvalid("forged"), HeaderInvalid("wrong")])
async def test_a_refused_acknowledgement_is_raised_even_while_no_message_comes(
    error: BridgeError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acks_module, "NOTICE_SECONDS", 0.01)

    async def settle(_how: str, _receipts: list[str]) -> BridgeError:
        return error

    fake = Fake([line(1), for_ever], settle=settle)
    async with client(fake) as bridge:
        with pytest.raises(type(error), match=error.detail):
            async with bridge.push("orders", "g") as messages:
                await numbers(messages)


async def test_a_refused_acknowledgement_is_raised_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks_module, "NOTICE_SECONDS", 0.01)

    async def settle(_how: str, _receipts: list[str]) -> BridgeError:
        return LeaseEnded("over")

    fake = Fake([line(1), for_ever], settle=settle)
    async with client(fake) as bridge:
        with pytest.raises(LeaseEnded, match="over"):
            async with bridge.push("orders", "g") as messages:
                await anext(messages)


async def test_an_acknowledgement_whose_stream_has_broken_off_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The break may be seen only after the refusal: two connections."""
    refused_one = asyncio.Event()

    async def settle(_how: str, receipts: list[str]) -> BridgeError | None:
        if receipts != ["r1"]:
            return None
        refused_one.set()
        return LeaseEnded("over")

    fake = Fake([line(1), refused_one.wait, httpx.ReadError("reset")], [line(2), OVER], settle=settle)
    async with client(fake) as bridge, bridge.push("orders", "g") as messages:
        assert await numbers(messages) == [1, 2]
    assert "come again" in caplog.text
    assert fake.acknowledged == ["r2"]


async def test_leaving_raises_when_the_last_acknowledgements_find_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks_module, "FLUSH_SECONDS", 0.05)

    async def settle(_how: str, _receipts: list[str]) -> None:
        raise httpx.ReadError("reset")

    fake = Fake([line(1), for_ever], settle=settle)
    async with client(fake) as bridge:
        with pytest.raises(OutcomeUnknown, match="ReadError: reset"):
            async with bridge.push("orders", "g") as messages:
                await anext(messages)


async def test_leaving_raises_when_the_bridge_is_silent_and_does_not_hide_another_exception(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(acks_module, "FLUSH_SECONDS", 0.05)

    async def settle(_how: str, _receipts: list[str]) -> None:
        await for_ever()

    async with client(Fake([line(1), for_ever], settle=settle)) as bridge:
        with pytest.raises(OutcomeUnknown, match="has not answered"):
            async with bridge.push("orders", "g") as messages:
                await anext(messages)
    async with client(Fake([line(1), line(2), for_ever], settle=settle)) as bridge:
        with pytest.raises(ZeroDivisionError):
            await break_down(bridge, at=2)
    assert "may come again although they were handled" in caplog.text


async def test_a_wait_that_is_cancelled_loses_nothing() -> None:
    go = asyncio.Event()
    fake = Fake([go.wait, line(1), OVER])
    async with client(fake) as bridge, bridge.push("orders", "g") as messages:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(messages)
        go.set()
        assert await numbers(messages) == [1]
    assert (fake.acknowledged, len(fake.asked)) == (["r1"], 1)


async def test_what_waits_in_the_client_is_renewed() -> None:
    fake = Fake([line(1), line(2), for_ever])
    async with client(fake) as bridge, bridge.push("orders", "g", lease_ms=30) as messages:
        await anext(messages)
        await until(lambda: ("extend", ["r1", "r2"]) in fake.settled)


def test_pauses_grow_to_a_limit_and_come_on_top_of_what_the_bridge_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.client.retry.FIRST", FIRST)
    assert [pause(failures, 1.0, None) for failures in (1, 2, 3)] == [FIRST, 2 * FIRST, 4 * FIRST]
    assert pause(1000, 1.0, None) == LONGEST
    assert pause(1000, 0.0, 7) == 7
