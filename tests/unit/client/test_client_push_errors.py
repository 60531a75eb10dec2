"""The push iterator against a scripted bridge: every way in which a stream and its acknowledgements can fail."""

import asyncio
import logging

import httpx
import pytest

from bridge.client import Client, push_and_ack
from bridge.client.request_sender import FIRST_DELAY, MAX_DELAY, retry_delay
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
from bridge.wire.stream_framings import StreamEnd, StreamMessage, encode_line
from tests.mock_transport import MockTransport
from tests.unit.client.scripted_bridge import (
    SILENCE,
    ScriptedBridge,
    Step,
    client,
    fail_at,
    forever,
    line,
    number,
    numbers,
    until,
)


@pytest.mark.parametrize(
    "cut",
    [
        [httpx.ReadError("reset")],
        [httpx.RemoteProtocolError("goaway")],
        [],
        [line(9)[:-1]],
        [StreamEnd("draining", "The bridge is stopping.")],
        [StreamEnd("purged")],
        [StreamEnd("deleted")],
        [StreamEnd("backend-unavailable", "The backend is gone.")],
        [StreamEnd("outcome-unknown", "No answer.")],
    ],
    ids=["reset", "goaway", "no end", "half a line", "draining", "purged", "deleted", "503", "504"],
)
async def test_a_stream_that_breaks_off_reopens(cut: list[Step], caplog: pytest.LogCaptureFixture) -> None:
    scripted = ScriptedBridge(cut, [line(2), SILENCE])
    async with client(scripted) as bridge, bridge.push("orders", "g") as messages:
        assert await numbers(messages) == [2]
    assert "reopens in" in caplog.text


async def test_it_reopens_until_a_bridge_answers(caplog: pytest.LogCaptureFixture) -> None:
    errors = Draining("stopping", retry_after=0), TooManyInFlight("full", retry_after=0), OutcomeUnknown("late")
    scripted = ScriptedBridge([httpx.ReadError("reset")], *errors, [line(1), SILENCE])
    async with client(scripted) as bridge, bridge.push("orders", "g") as messages:
        assert await numbers(messages) == [1]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 4


async def test_buffered_messages_of_a_broken_stream_are_dropped() -> None:
    """Their leases ended with the stream, so they are delivered again, perhaps to another consumer."""
    broken = asyncio.Event()
    scripted = ScriptedBridge(
        [line(1) + line(2) + line(3), broken.wait, httpx.ReadError("reset")], [line(2), line(3), SILENCE]
    )
    async with client(scripted) as bridge, bridge.push("orders", "g", max_messages=4) as messages:
        assert number(await anext(messages)) == 1
        broken.set()
        await until(lambda: len(scripted.asked) == 2)
        assert await numbers(messages) == [2, 3]
    assert [asked["maxmessages"] for asked in scripted.asked] == ["4", "3"]


async def test_a_break_after_the_last_message_ends_the_iteration() -> None:
    broken = asyncio.Event()
    scripted = ScriptedBridge([line(1), broken.wait, httpx.ReadError("reset")])
    async with client(scripted) as bridge, bridge.push("orders", "g", max_messages=1) as messages:
        assert number(await anext(messages)) == 1
        broken.set()
        assert await numbers(messages) == []
    assert len(scripted.asked) == 1


REFUSALS = [
    DestinationInvalid("no name"),
    QuotaExceeded("slow down", retry_after=1),
    Internal("a defect"),
]


async def test_a_permanent_error_is_raised_when_the_next_message_is_requested(
    subtests: pytest.Subtests,
) -> None:
    for error in REFUSALS:
        with subtests.test(error=error):
            seconds: list[list[Step] | BridgeError] = [error, [line(2), StreamEnd(error.code, error.detail)]]
            for second in seconds:
                scripted = ScriptedBridge([httpx.ReadError("reset")], second)
                async with client(scripted) as bridge, bridge.push("orders", "g") as messages:
                    with pytest.raises(type(error), match=error.detail):
                        await numbers(messages)
                assert len(scripted.asked) == 2


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
        content=encode_line(StreamMessage(Message("orders"), None, 0)) + b"\n",
    ),
]


async def test_a_response_that_is_no_push_stream_is_not_retried(subtests: pytest.Subtests) -> None:
    for answer in NO_STREAM:
        with subtests.test(answer=answer):
            scripted = ScriptedBridge(answer)
            async with client(scripted) as bridge:
                with pytest.raises(OutcomeUnknown, match="does not speak the OpenMessaging HTTP binding"):
                    async with bridge.push("orders", "g") as messages:
                        await numbers(messages)
            assert len(scripted.asked) == 1


async def test_a_first_stream_that_does_not_open_is_an_error_of_entering(subtests: pytest.Subtests) -> None:
    cases: list[BridgeError] = [*REFUSALS, Draining("stopping"), OutcomeUnknown("late")]
    for error in cases:
        with subtests.test(error=error):
            scripted = ScriptedBridge(error)
            async with client(scripted) as bridge:
                with pytest.raises(type(error), match=error.detail):
                    async with bridge.push("orders", "g"):
                        pytest.fail("entered")


async def test_a_bridge_that_cannot_be_reached_is_an_error_of_entering() -> None:
    async with Client("http://127.0.0.1:1") as bridge:
        with pytest.raises(BackendUnavailable, match="cannot be reached"):
            async with bridge.push("orders", "g"):
                pytest.fail("entered")


async def test_a_head_that_does_not_come_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.client.request_sender.RESPONSE_SECONDS", 0.01)

    async def silent(_request: httpx.Request) -> httpx.Response:
        await forever()
        raise AssertionError

    async with Client("http://bridge:8080", transport=MockTransport(silent)) as bridge:
        with pytest.raises(OutcomeUnknown, match="TimeoutError"):
            async with bridge.push("orders", "g"):
                pytest.fail("entered")


async def test_an_acknowledgement_that_does_not_reach_the_bridge_is_repeated() -> None:
    errors: list[Exception] = [
        httpx.ConnectError("refused"),
        httpx.ReadError("reset"),
        Draining("stopping", retry_after=0),
    ]

    async def settle(_how: str, _receipts: list[str]) -> BridgeError | None:
        if not errors:
            return None
        error = errors.pop(0)
        if isinstance(error, BridgeError):
            return error
        raise error

    scripted = ScriptedBridge([line(1), line(2), forever], settle=settle)
    async with client(scripted) as bridge, bridge.push("orders", "g") as messages:
        await anext(messages)
        await anext(messages)
        await until(lambda: scripted.acknowledged == ["r1"])
    assert (scripted.acknowledged, errors) == (["r1", "r2"], [])


@pytest.mark.parametrize("error", [LeaseEnded("over"), ReceiptInvalid("forged"), HeaderInvalid("wrong")])
async def test_a_refused_acknowledgement_is_raised_even_while_no_message_comes(
    error: BridgeError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_and_ack, "STREAM_END_SECONDS", 0.01)

    async def settle(_how: str, _receipts: list[str]) -> BridgeError:
        return error

    scripted = ScriptedBridge([line(1), forever], settle=settle)
    async with client(scripted) as bridge:
        with pytest.raises(type(error), match=error.detail):
            async with bridge.push("orders", "g") as messages:
                await numbers(messages)


async def test_a_refused_acknowledgement_is_raised_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_and_ack, "STREAM_END_SECONDS", 0.01)

    async def settle(_how: str, _receipts: list[str]) -> BridgeError:
        return LeaseEnded("over")

    scripted = ScriptedBridge([line(1), forever], settle=settle)
    async with client(scripted) as bridge:
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

    scripted = ScriptedBridge([line(1), refused_one.wait, httpx.ReadError("reset")], [line(2), SILENCE], settle=settle)
    async with client(scripted) as bridge, bridge.push("orders", "g") as messages:
        assert await numbers(messages) == [1, 2]
    assert "are delivered again" in caplog.text
    assert scripted.acknowledged == ["r2"]


async def test_leaving_raises_when_the_last_acknowledgements_do_not_reach_the_bridge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(push_and_ack, "FLUSH_SECONDS", 0.05)

    async def settle(_how: str, _receipts: list[str]) -> None:
        raise httpx.ReadError("reset")

    scripted = ScriptedBridge([line(1), forever], settle=settle)
    async with client(scripted) as bridge:
        with pytest.raises(OutcomeUnknown, match="ReadError: reset"):
            async with bridge.push("orders", "g") as messages:
                await anext(messages)


async def test_leaving_raises_when_the_bridge_is_silent_and_does_not_hide_another_exception(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(push_and_ack, "FLUSH_SECONDS", 0.05)

    async def settle(_how: str, _receipts: list[str]) -> None:
        await forever()

    async with client(ScriptedBridge([line(1), forever], settle=settle)) as bridge:
        with pytest.raises(OutcomeUnknown, match="did not confirm"):
            async with bridge.push("orders", "g") as messages:
                await anext(messages)
    async with client(ScriptedBridge([line(1), line(2), forever], settle=settle)) as bridge:
        with pytest.raises(ZeroDivisionError):
            await fail_at(bridge, at=2)
    assert "that were handled may be delivered again" in caplog.text


async def test_a_wait_that_is_cancelled_loses_nothing() -> None:
    go = asyncio.Event()
    scripted = ScriptedBridge([go.wait, line(1), SILENCE])
    async with client(scripted) as bridge, bridge.push("orders", "g") as messages:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(messages)
        go.set()
        assert await numbers(messages) == [1]
    assert (scripted.acknowledged, len(scripted.asked)) == (["r1"], 1)


async def test_leases_of_buffered_messages_are_renewed() -> None:
    scripted = ScriptedBridge([line(1), line(2), forever])
    async with client(scripted) as bridge, bridge.push("orders", "g", lease_ms=30) as messages:
        await anext(messages)
        await until(lambda: ("extend", ["r1", "r2"]) in scripted.settled)


def test_delays_grow_to_a_limit_and_are_added_to_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.client.request_sender.FIRST_DELAY", FIRST_DELAY)
    assert [retry_delay(failures, 1.0, None) for failures in (1, 2, 3)] == [
        FIRST_DELAY,
        2 * FIRST_DELAY,
        4 * FIRST_DELAY,
    ]
    assert retry_delay(1000, 1.0, None) == MAX_DELAY
    assert retry_delay(1000, 0.0, 7) == 7
