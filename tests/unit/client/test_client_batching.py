"""Concurrent produce calls that share a request, and lists that take several."""

import asyncio
from collections.abc import Sequence

import pytest

from bridge.client import Client, ProduceResult, batches_and_transactions
from bridge.client.batches_and_transactions import ProduceBatcher, Result, store_all
from bridge.errors import (
    BackendUnavailable,
    BodyTooLarge,
    BridgeError,
    DestinationUnknown,
    OutcomeUnknown,
    QuotaExceeded,
)
from bridge.message import Message

LONG = 60.0
"""A linger that no test waits for, seconds."""


class Sender:
    """Stores batches; the body `refused` is refused, and more than `limit` messages are too many."""

    def __init__(self, *errors: BridgeError, limit: int = 1000) -> None:
        self.batches: list[list[bytes]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._errors = list(errors)
        self._limit = limit

    async def __call__(self, messages: Sequence[Message]) -> list[Result]:
        self.batches.append([message.body for message in messages])
        await self.gate.wait()
        if len(messages) > self._limit:
            raise BodyTooLarge("too many")
        if self._errors:
            raise self._errors.pop(0)
        return [
            DestinationUnknown("no") if message.body == b"refused" else stored(message.body) for message in messages
        ]


def stored(body: bytes) -> ProduceResult:
    return ProduceResult(body.decode(), 1, "h", None, None, {})


def message(number: int) -> Message:
    return Message("orders", b"%d" % number)


async def produce(batcher: ProduceBatcher, *messages: Message) -> list[ProduceResult | BaseException]:
    return await asyncio.gather(*(batcher.produce(each) for each in messages), return_exceptions=True)


async def test_concurrent_calls_share_a_batch_and_each_has_its_own_result() -> None:
    sender = Sender()
    batcher = ProduceBatcher(sender, 0.01, 500)
    first, second, third = await produce(batcher, message(1), Message("orders", b"refused"), message(3))
    assert (first, third) == (stored(b"1"), stored(b"3"))
    assert isinstance(second, DestinationUnknown)
    assert sender.batches == [[b"1", b"refused", b"3"]]


async def test_a_full_batch_does_not_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    sender = Sender()
    await produce(ProduceBatcher(sender, LONG, 2), *(message(n) for n in range(4)))
    assert sender.batches == [[b"0", b"1"], [b"2", b"3"]]
    monkeypatch.setattr(batches_and_transactions, "BATCH_BYTES", 15)
    await produce(ProduceBatcher(sender, LONG, 500), *(Message("orders", b"ab") for _ in range(2)), message(1))
    assert sender.batches[2:] == [[b"ab"], [b"ab", b"1"]]
    large = Message("orders", b"c", {"p": "x" * 15})
    await produce(ProduceBatcher(sender, LONG, 500), large, large)
    assert sender.batches[4:] == [[b"c"], [b"c"]], "headers count"


@pytest.mark.parametrize("bytes_max", [1000, 15], ids=["messages", "bytes"])
async def test_after_a_full_batch_the_next_one_lingers(bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_and_transactions, "BATCH_BYTES", bytes_max)
    sender = Sender()
    batcher = ProduceBatcher(sender, LONG, 2)
    await produce(batcher, Message("orders", b"ab"), message(1))
    call = asyncio.create_task(batcher.produce(message(2)))
    await asyncio.sleep(0.01)
    assert sender.batches == [[b"ab", b"1"]]
    await batcher.close()
    assert await call == stored(b"2")


async def test_one_batch_is_under_way_at_a_time_and_the_order_is_that_of_the_calls() -> None:
    sender = Sender()
    sender.gate.clear()
    batcher = ProduceBatcher(sender, 0, 3)
    calls = asyncio.gather(batcher.produce(message(0)), batcher.produce(message(1)))
    await asyncio.sleep(0.01)
    later = asyncio.gather(*(batcher.produce(message(n)) for n in range(2, 7)))
    await asyncio.sleep(0.01)
    assert sender.batches == [[b"0", b"1"]]
    sender.gate.set()
    assert [result.message_id for result in (*await calls, *await later)] == [str(n) for n in range(7)]
    assert sender.batches == [[b"0", b"1"], [b"2", b"3", b"4"], [b"5", b"6"]]


async def test_a_batch_that_fails_as_a_whole_fails_each_call_with_its_own_error() -> None:
    results = await produce(ProduceBatcher(Sender(QuotaExceeded("slow", retry_after=7)), 0, 500), *[message(0)] * 3)
    assert len({id(result) for result in results}) == 3
    assert [(type(r), str(r), getattr(r, "retry_after", 0)) for r in results] == [(QuotaExceeded, "slow", 7)] * 3


async def test_a_batch_that_is_too_large_is_sent_in_parts() -> None:
    sender = Sender(limit=2)
    results = await produce(ProduceBatcher(sender, 0, 500), *(message(n) for n in range(5)))
    assert results == [stored(b"%d" % n) for n in range(5)]
    assert [len(batch) for batch in sender.batches] == [5, 2, 3, 1, 2]
    refused = await produce(ProduceBatcher(Sender(limit=0), 0, 500), message(0), message(1))
    assert [type(result) for result in refused] == [BodyTooLarge] * 2


async def test_a_message_that_cannot_be_encoded_is_raised() -> None:
    async def broken(_messages: Sequence[Message]) -> list[Result]:
        raise TypeError

    assert [type(r) for r in await produce(ProduceBatcher(broken, 0, 500), message(0))] == [TypeError]


async def test_a_call_that_is_cancelled_in_time_sends_nothing() -> None:
    sender = Sender()
    batcher = ProduceBatcher(sender, LONG, 500)
    calls = [asyncio.create_task(batcher.produce(message(n))) for n in range(2)]
    await asyncio.sleep(0)
    calls[0].cancel()
    await asyncio.sleep(0)
    await batcher.close()
    assert (await calls[1], sender.batches) == (stored(b"1"), [[b"1"]])


async def test_a_call_that_is_cancelled_under_way_does_not_disturb_the_others() -> None:
    sender = Sender()
    sender.gate.clear()
    batcher = ProduceBatcher(sender, 0, 500)
    calls = [asyncio.create_task(batcher.produce(message(n))) for n in range(2)]
    await asyncio.sleep(0.01)
    calls[0].cancel()
    await asyncio.sleep(0)
    sender.gate.set()
    assert await calls[1] == stored(b"1")


async def test_many_messages_take_several_batches() -> None:
    sender = Sender()
    results = await store_all(sender, (Message("orders", b"refused" if n == 1 else b"%d" % n) for n in range(5)), 2)
    assert [type(result) for result in results] == [ProduceResult, DestinationUnknown, *[ProduceResult] * 3]
    assert [len(batch) for batch in sender.batches] == [2, 2, 1]


async def test_after_a_batch_whose_outcome_is_unknown_nothing_more_is_sent() -> None:
    sender = Sender(OutcomeUnknown("late"))
    results = await store_all(sender, [message(n) for n in range(5)], 2)
    assert [type(result) for result in results] == [OutcomeUnknown] * 2 + [BackendUnavailable] * 3
    assert len(sender.batches) == 1


def test_numbers_out_of_range_are_refused() -> None:
    for options in ({"batch": 0}, {"batch": 100_001}, {"linger_ms": -1}, {"linger_ms": float("nan")}):
        with pytest.raises(ValueError, match="batch is 1 to 100000"):
            Client("http://bridge:8080", **options)
