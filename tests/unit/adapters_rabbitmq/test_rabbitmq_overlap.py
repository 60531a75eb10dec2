"""Messages that are in the history of a late group and in its own queue."""

import asyncio

import pytest

from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties
from adapters.rabbitmq.group.queues_and_history import Backfill, Overlap, marker
from adapters.rabbitmq.mapping import is_marker
from bridge.errors import BackendUnavailable


def arrival(name: str) -> Arrival:
    return Arrival(1, False, "p0", Properties(message_id=name), b"")


def test_each_message_of_the_history_has_one_duplicate() -> None:
    overlap = Overlap()
    for name in ("a", "b", "b"):
        overlap.add(arrival(name))
    found = [overlap.remove(arrival(name)) for name in ("a", "c", "a", "b", "b", "b")]
    assert found == [True, False, False, True, True, False]


def test_a_mark_is_recognized_by_its_text() -> None:
    assert is_marker(marker("end"))
    assert is_marker(marker("end"), "end")
    assert not is_marker(marker("end"), "start")
    assert not is_marker(Properties(), "end")
    assert not is_marker(Properties(headers={"x": "end"}))


async def test_if_the_queue_of_a_partition_fails_no_other_is_read_on() -> None:
    """It could write into the history of the next set-up, which has the lock then."""
    backfill = Backfill.__new__(Backfill)
    backfill._overlap = {0: Overlap(), 1: Overlap()}
    reading, ended = asyncio.Event(), list[int]()

    async def drop(partition: int, _overlap: Overlap) -> None:
        if partition:
            await reading.wait()
            raise BackendUnavailable("lost")
        try:
            reading.set()
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ended.append(partition)

    backfill._drop_overlap = drop  # type: ignore[method-assign, assignment]
    with pytest.raises(BackendUnavailable):
        await backfill._drop_overlaps()
    assert ended == [0]
