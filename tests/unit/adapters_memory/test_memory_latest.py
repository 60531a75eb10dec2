"""Where a new group starts when it asks for what comes after it."""

from pathlib import Path

import pytest

from adapters.base import Adapter, Outcome
from adapters.memory import connect
from bridge.message import Message
from tests.unit.adapters_memory.alone import alone


@pytest.fixture(params=["volatile", "journal"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://?partitions=1" + (f"&journal={tmp_path}/j" if request.param == "journal" else "")


async def store(adapter: Adapter, *bodies: bytes) -> None:
    for body in bodies:
        await adapter.publish(Message("orders", body, message_id=body.decode(), partition=0, born_timestamp=1))


async def bodies_for(adapter: Adapter, group: str, *, latest: bool = False) -> list[bytes]:
    subscription = await adapter.subscribe("orders", group, alone, latest=latest)
    fetch = subscription.fetch(10, 1 << 20)
    found = [delivery.message.body for delivery in fetch.result()] if fetch.done() else []
    fetch.cancel()
    await subscription.close()
    return found


async def test_a_latest_group_starts_after_the_newest_message(url: str) -> None:
    adapter = connect(url)
    await adapter.start()
    await store(adapter, b"old")
    assert await bodies_for(adapter, "g", latest=True) == []
    await store(adapter, b"new")
    assert await bodies_for(adapter, "g", latest=True) == [b"new"]
    assert await bodies_for(adapter, "other") == [b"old", b"new"]
    await adapter.close()


async def test_a_known_group_goes_on_where_it_was(url: str) -> None:
    adapter = connect(url)
    await adapter.start()
    await store(adapter, b"old")
    assert await bodies_for(adapter, "g") == [b"old"]
    assert await bodies_for(adapter, "g", latest=True) == [b"old"]
    await adapter.close()


async def test_a_latest_group_stays_where_it_started_after_a_restart(tmp_path: Path) -> None:
    url = f"memory://?partitions=1&journal={tmp_path}/j"
    adapter = connect(url)
    await adapter.start()
    await store(adapter, b"old")
    await bodies_for(adapter, "g", latest=True)
    await store(adapter, b"new")
    await adapter.close()
    again = connect(url)
    await again.start()
    assert await bodies_for(again, "g") == [b"new"]
    await again.close()


async def test_messages_that_a_latest_group_skipped_are_dropped_when_the_others_are_done() -> None:
    adapter = connect("memory://?partitions=1&max_messages=2")
    await adapter.start()
    await store(adapter, b"1", b"2")
    first = await adapter.subscribe("orders", "first", alone)
    deliveries = first.fetch(10, 1 << 20).result()
    await bodies_for(adapter, "late", latest=True)
    await first.settle(deliveries, Outcome.SETTLED)
    await store(adapter, b"3")
    assert [d.message.body for d in first.fetch(10, 1 << 20).result()] == [b"3"]
    await adapter.close()
