"""The push iterator against a scripted bridge: what is handed out, acknowledged and renewed."""

import asyncio

import httpx
import pytest

from bridge.errors import (
    BridgeError,
    LeaseEnded,
)
from bridge.message import Message
from bridge.wire.stream_framings import StreamEnd
from tests.unit.client.scripted_bridge import (
    SILENCE,
    ScriptedBridge,
    client,
    fail_at,
    forever,
    line,
    number,
    numbers,
    until,
)


async def test_the_parameters_are_sent_and_lines_are_read_however_they_are_split() -> None:
    raw = b"\n" + line(1) + b"\n\n" + line(2) + line(3)
    for size in (1, 7, len(raw)):
        scripted = ScriptedBridge([*(raw[start : start + size] for start in range(0, len(raw), size)), SILENCE])
        async with (
            client(scripted) as bridge,
            bridge.push("orders", "billing", lease_ms=9000, credit=3, max_messages=8, wait_ms=50) as messages,
        ):
            assert await numbers(messages) == [1, 2, 3]
        assert scripted.acknowledged == ["r1", "r2", "r3"]
        assert scripted.accepted == ["application/x-ndjson"]
        assert scripted.asked == [
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


async def test_a_received_message_is_what_a_pull_returns() -> None:
    scripted = ScriptedBridge([line(1), StreamEnd("maxmessages")])
    async with client(scripted) as bridge, bridge.push("orders", "g") as messages:
        received = await anext(messages)
        assert received == (Message("orders", b"1", delivery_count=1), "r1", 5, 1)


async def test_a_requested_end_is_not_logged(caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests) -> None:
    for why in ("maxmessages", "waitmills"):
        with subtests.test(why=why):
            scripted = ScriptedBridge([line(1), StreamEnd(why)])
            async with client(scripted) as bridge, bridge.push("orders", "g", max_messages=1, wait_ms=9) as messages:
                assert await numbers(messages) == [1]
                assert await numbers(messages) == []
            assert caplog.records == []


async def test_a_message_is_acknowledged_when_the_next_is_requested_and_not_before() -> None:
    scripted = ScriptedBridge([line(1), line(2), forever])
    async with client(scripted) as bridge, bridge.push("orders", "g") as messages:
        assert number(await anext(messages)) == 1
        await bridge.extend("r9", lease_ms=1)  # a request later still nothing is acknowledged
        assert scripted.acknowledged == []
        assert number(await anext(messages)) == 2
        await until(lambda: scripted.acknowledged == ["r1"])
    assert scripted.acknowledged == ["r1", "r2"]


async def test_an_exception_does_not_acknowledge_the_current_message() -> None:
    scripted = ScriptedBridge([line(1), line(2), line(3), forever])
    async with client(scripted) as bridge:
        with pytest.raises(ZeroDivisionError):
            await fail_at(bridge, at=2)
    assert scripted.acknowledged == ["r1"]


async def test_leaving_the_loop_acknowledges_the_current_message() -> None:
    scripted = ScriptedBridge([line(1), line(2), forever])
    async with client(scripted) as bridge, bridge.push("orders", "g") as messages:
        async for _ in messages:
            break
    assert scripted.acknowledged == ["r1"]


async def test_a_nacked_message_is_not_acknowledged() -> None:
    scripted = ScriptedBridge([line(1), line(2), SILENCE])
    async with client(scripted) as bridge, bridge.push("orders", "g") as messages:
        await messages.nack(await anext(messages), delay_ms=7)
        assert await numbers(messages) == [2]
    assert scripted.settled == [("nack", ["r1"]), ("ack", ["r2"])]


async def test_without_auto_ack_only_the_program_acknowledges() -> None:
    scripted = ScriptedBridge([line(1), line(2), SILENCE])
    async with client(scripted) as bridge, bridge.push("orders", "g", auto_ack=False) as messages:
        first, second = await anext(messages), await anext(messages)
        await bridge.ack(second.receipt or "", first.receipt or "")
        assert await numbers(messages) == []
    assert scripted.settled == [("ack", ["r2", "r1"])]


async def test_at_most_once_is_acknowledged_before_it_is_handed_out() -> None:
    scripted = ScriptedBridge([line(1) + line(2), SILENCE])
    async with client(scripted) as bridge, bridge.push("orders", "g", ack=False) as messages:
        received = await anext(messages)
        assert (scripted.settled, number(received), received.receipt) == ([("ack", ["r1", "r2"])], 1, None)
        assert received.lease_until is None
        with pytest.raises(ValueError, match="settled before"):
            await messages.nack(received)
        assert await numbers(messages) == [2]
    assert len(scripted.settled) == 1


async def test_at_most_once_drops_messages_whose_stream_ended_before_their_acknowledgement() -> None:
    asked = asyncio.Event()

    async def settle(_how: str, receipts: list[str]) -> BridgeError | None:
        asked.set()
        return LeaseEnded("over") if receipts == ["r1"] else None

    scripted = ScriptedBridge([line(1), asked.wait, httpx.ReadError("reset")], [line(2), SILENCE], settle=settle)
    async with client(scripted) as bridge, bridge.push("orders", "g", ack=False) as messages:
        assert await numbers(messages) == [2]


async def test_a_handler_that_never_waits_does_not_hold_up_acknowledgements() -> None:
    scripted = ScriptedBridge([b"".join(line(n) for n in range(1, 500)), forever])
    async with client(scripted) as bridge, bridge.push("orders", "g") as messages:
        for _ in range(400):
            await anext(messages)
        assert scripted.acknowledged


async def test_acknowledgements_that_are_added_during_a_request_share_the_next() -> None:
    first, go = asyncio.Event(), asyncio.Event()

    async def settle(_how: str, _receipts: list[str]) -> None:
        first.set()
        await go.wait()

    scripted = ScriptedBridge([b"".join(line(n) for n in range(1, 1200)), SILENCE], settle=settle)
    async with client(scripted) as bridge, bridge.push("orders", "g") as messages:
        for _ in range(2):
            await anext(messages)
        await first.wait()
        for _ in range(1197):
            await anext(messages)
        go.set()
    assert [len(receipts) for _, receipts in scripted.settled] == [1, 500, 500, 198]
    assert scripted.acknowledged == [f"r{n}" for n in range(1, 1200)]
