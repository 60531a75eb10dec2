"""Batches of our own have the bytes of kafka-python's, answer each record, and go to a node one request at a time."""

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Final

import pytest
from kafka import TopicPartition
from kafka.producer.sender import Sender
from kafka.record.memory_records import MemoryRecordsBuilder

from adapters.base import Stored
from adapters.kafka.mapping import Outgoing
from adapters.kafka.produce.accumulator import Accumulator, Batch
from adapters.kafka.produce.batch_sender import BatchSender
from bridge.errors import BackendUnavailable

PART: Final = TopicPartition("orders", 3)


def record(chance: random.Random) -> Outgoing:
    def raw(*sizes: int) -> bytes:
        return chance.randbytes(chance.choice(sizes))

    time = 1_700_000_000_000 + chance.choice((0, 5, -7, 100_000, 10**12))
    headers = [
        (chance.choice(("a", "é" * 40, "oms_h_qos")), raw(0, 1, 63, 64, 200)) for _ in range(chance.randrange(4))
    ]
    key, value = chance.choice((None, raw(0, 1, 300))), chance.choice((None, raw(0, 70, 9000)))
    return Outgoing(PART.topic, PART.partition, time, key, value, headers)


async def test_a_batch_has_the_bytes_of_the_library_s() -> None:
    chance = random.Random(7)  # noqa: S311
    loop = asyncio.get_running_loop()
    for _ in range(200):
        size = chance.choice((500, 5000, 128 << 10))
        expected, batch = MemoryRecordsBuilder(2, 0, size), Batch(PART, MemoryRecordsBuilder(2, 0, size))
        for _ in range(chance.randrange(1, 40)):
            _, _, timestamp, key, value, headers = added = record(chance)
            fits = expected.append(timestamp, key, value, headers) is not None
            assert batch.add(added, loop.create_future()) is fits
            assert batch.records.is_full() == expected.is_full()
        for each in (expected, batch.records):
            each.close()
        assert batch.records.buffer() == expected.buffer()
        assert not batch.add(added, loop.create_future())


async def test_a_batch_that_is_split_answers_each_record() -> None:
    accumulator = _accumulator(lambda _node: 0)
    futures: list[asyncio.Future[Stored]] = [asyncio.get_running_loop().create_future() for _ in range(3)]
    for future in futures:
        accumulator.add(Outgoing(PART.topic, PART.partition, 1_700_000_000_000, b"key", b"value", []), future)
    (whole,) = accumulator._batches[PART]
    accumulator._batches[PART].clear()
    whole.records.close()
    assert accumulator.split_and_reenqueue(whole) == 2
    first, second = accumulator._batches[PART]
    first.complete(40, -1)
    refused = BackendUnavailable("refused")
    second.complete_exceptionally(refused, lambda _: refused)
    assert [future.result() for future in futures[:2]] == [Stored(3, 40), Stored(3, 41)]
    assert futures[2].exception() is refused


async def test_a_part_that_is_split_again_answers_each_record() -> None:
    accumulator = _accumulator(lambda _node: 0)
    futures: list[asyncio.Future[Stored]] = [asyncio.get_running_loop().create_future() for _ in range(4)]
    for future in futures:
        accumulator.add(Outgoing(PART.topic, PART.partition, 1_700_000_000_000, b"key", b"value", []), future)
    batches = accumulator._batches[PART]
    for expected in ([2, 2], [1, 1, 2]):
        large = batches.popleft()
        large.records.close()
        accumulator.split_and_reenqueue(large)
        assert [batch.record_count for batch in batches] == expected
    for batch, offset in zip(batches, (7, 8, 20), strict=True):
        batch.complete(offset, -1)
    assert [future.result().offset for future in futures] == [7, 8, 20, 21]


class Leaders:
    """Of a cluster: partitions 0 and 2 are led by node 1, partition 1 by node 2."""

    def leader_for_partition(self, part: TopicPartition) -> int:
        return 2 if part.partition == 1 else 1


class LeadersOfOrders:
    """Of a cluster that has no other topic any more."""

    def leader_for_partition(self, part: TopicPartition) -> int | None:
        return 1 if part.topic == "orders" else None


async def test_partitions_of_topics_that_were_deleted_are_forgotten() -> None:
    """Otherwise the library asks for their leaders in every round."""
    accumulator = _accumulator(lambda _node: 0)
    loop = asyncio.get_running_loop()
    for number in range(300):
        accumulator.add(Outgoing(f"deleted-{number}", 0, 1_700_000_000_000, None, b"", []), loop.create_future())
        accumulator._batches[TopicPartition(f"deleted-{number}", 0)].clear()
    accumulator.add(Outgoing("orders", 0, 1_700_000_000_000, None, b"", []), loop.create_future())
    nodes, _, unknown = accumulator.ready(LeadersOfOrders())
    assert (nodes, unknown) == ({1}, False)
    assert list(accumulator._batches) == [TopicPartition("orders", 0)]
    accumulator.add(Outgoing("unknown", 0, 1_700_000_000_000, None, b"", []), loop.create_future())
    assert accumulator.ready(LeadersOfOrders())[2], "its batch waits for a leader"
    assert len(accumulator._batches) == 2


async def test_a_node_gets_no_second_request_before_it_has_answered() -> None:
    unanswered = {1: 0, 2: 0}
    accumulator = _accumulator(unanswered.__getitem__)
    begun = [_add(accumulator, partition) for partition in (0, 0, 1)]
    assert begun == [True, False, True]
    assert accumulator.ready(Leaders())[0] == {1, 2}
    unanswered[1] = 1
    assert _add(accumulator, 2)
    assert accumulator.ready(Leaders())[0] == {2}
    unanswered[1] = 0
    assert accumulator.ready(Leaders())[0] == {1, 2}


async def test_the_sender_looks_again_after_an_answer_and_in_time_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, sent = [], [1]
    sender = BatchSender.__new__(BatchSender)
    sender.unanswered, sender._look_again = False, 0.0
    sender._client = SimpleNamespace(in_flight_request_count=lambda: sent[0])

    def look(now: float) -> float:
        assert not sender.unanswered, "a record that is added now wakes nothing"
        looks.append(now)
        return 500.0

    monkeypatch.setattr(sender, "_send_producer_data", look)
    monkeypatch.setattr(Sender, "_handle_produce_response", lambda _self, _response: None)
    assert sender._send_ready(100.0) == pytest.approx(10)
    assert sender.unanswered
    assert sender._send_ready(100.004) == pytest.approx(6)
    sender._send_ready(100.02)
    assert looks == [100.0, 100.02]
    sender._handle_produce_response(None)
    sent[0] = 0
    assert sender._send_ready(100.021) == 500.0
    assert not sender.unanswered
    assert sender._send_ready(100.022) == 500.0
    assert looks[2:] == [100.021, 100.022]


def _accumulator(unanswered: Callable[[int], int]) -> Accumulator:
    return Accumulator(_call, unanswered, batch_size=128 << 10, delivery_timeout_ms=10**12)


def _add(accumulator: Accumulator, partition: int) -> bool:
    future = asyncio.get_running_loop().create_future()
    return accumulator.add(Outgoing(PART.topic, partition, 1_700_000_000_000, b"key", b"value", []), future)


def _call(action: Callable[[], None]) -> None:
    action()
