"""Batches of our own have the bytes of kafka-python's, and answer each record, also after a split."""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from kafka import TopicPartition
from kafka.record.memory_records import MemoryRecordsBuilder

from adapters.base import Stored
from adapters.kafka.produce.accumulator import Accumulator, Batch
from adapters.kafka.record import Outgoing
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
        expected, batch = MemoryRecordsBuilder(2, 0, size), Batch(PART, MemoryRecordsBuilder(2, 0, size), _call)
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
    accumulator = Accumulator(_call, batch_size=128 << 10, delivery_timeout_ms=10**12)
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


def _call(action: Callable[[], None]) -> None:
    action()
