"""Tests for `Subscription.fetch`."""
# ruff: noqa: S101 - the kit's tests use assert, as all tests do

import asyncio
from typing import Final

import pytest

from adapters.base import Delivery
from adapters.testing.harness import GUARD, LOTS, Contract, Session, bodies, numbered
from bridge.errors import BackendUnavailable
from bridge.message import Message

_TRIES: Final = 3
_BODY: Final = 100


class FetchContract(Contract):
    """Part of `AdapterContract`."""

    async def test_stored_messages_are_available_when_subscribe_returns(self, session: Session) -> None:
        """Tests "Stored messages are available when this returns".

        A busy machine may be too slow: one of three subscriptions to the group is enough.
        """
        adapter = await session.open()
        known = await session.reader(adapter)
        await known.close()
        await session.publish(adapter, b"a")
        for _ in range(_TRIES):
            reader = await session.reader(adapter)
            future = reader.subscription.fetch(1, LOTS)
            done = future.done()
            async with asyncio.timeout(GUARD):
                assert bodies(await future) == [b"a"]
            await reader.close()
            if done:
                return
        raise AssertionError("the first fetch was never done at once")

    async def test_a_fetch_returns_at_most_limit(self, session: Session) -> None:
        """Tests "At least one delivery, at most `limit` (>= 1)"."""
        adapter = await session.open()
        sent = numbered(20)
        await session.publish(adapter, *sent)
        reader = await session.reader(adapter)
        found: list[bytes] = []
        for limit in (1, 7, 3, 100, 100):
            if len(found) == len(sent):
                break
            some = bodies(await reader.fetch(limit))
            assert 1 <= len(some) <= limit
            found += some
        found += bodies(await reader.take(len(sent) - len(found)))
        assert found == sent

    async def test_the_sizes_of_a_fetch_do_not_exceed_max_bytes(self, session: Session) -> None:
        """Tests "Their sizes (`Message.size`) do not exceed `max_bytes`, unless there is only one"."""
        adapter = await session.open()
        sent = [body * (_BODY // len(body)) for body in numbered(12)]
        for number, body in enumerate(sent):
            if number % 2:
                await session.publish(adapter, body, partition=number)
            else:
                await session.publish(adapter, body[:1], partition=number, properties={"large": body.decode()})
        reader = await session.reader(adapter)
        found: list[Delivery] = []
        for max_bytes in (1, 2 * _BODY + 50, _BODY, 3 * _BODY + 600, 3 * _BODY):
            some = await reader.fetch(100, max_bytes)
            assert len(some) == 1 or 0 < sum(each.message.size for each in some) <= max_bytes
            found += some
        found += await reader.take(len(sent) - len(found))
        assert sorted(each.message.properties.get("large") or each.message.body.decode() for each in found) == sorted(
            body.decode() for body in sent
        )

    async def test_a_fetch_waits_for_a_message(self, session: Session) -> None:
        """Tests "Return available messages, in stored order per partition; if there are none, wait for some"."""
        adapter = await session.open()
        reader = await session.reader(adapter)
        future = reader.subscription.fetch(100, LOTS)
        await asyncio.sleep(0)
        assert not future.done(), "nothing was published"
        await session.publish(adapter, b"a")
        async with asyncio.timeout(GUARD):
            assert bodies(await future) == [b"a"]

    async def test_a_cancelled_fetch_loses_nothing(self, session: Session) -> None:
        """Tests "Cancelling a pending future loses no message"."""
        adapter = await session.open()
        reader = await session.reader(adapter)
        cancelled = reader.subscription.fetch(100, LOTS)
        cancelled.cancel()
        await session.publish(adapter, b"a", b"b")
        again = reader.subscription.fetch(1, LOTS)
        if not again.cancel():
            reader.add(again.result())
        found = [*reader.unsettled.values()]
        while len(found) < 2:  # noqa: PLR2004 - as many as were published
            found += await reader.fetch()
        assert bodies(found) == [b"a", b"b"]

    async def test_a_position_is_unique_in_its_partition(self, session: Session) -> None:
        """Tests "The adapter's own handle, unique within the partition"."""
        adapter = await session.open()
        sent = numbered(40)
        for number, body in enumerate(sent):
            await session.publish(adapter, body, partition=number)
        reader = await session.reader(adapter)
        found = await reader.take(len(sent))
        assert len({(each.partition, each.position) for each in found}) == len(sent)
        handles = {(each.partition, each.message.partition) for each in found}
        count = await session.partitions(adapter)
        assert len(handles) == min(count, len(sent)), "one handle for each partition"

    async def test_messages_are_fetched_again(self, session: Session) -> None:
        """Tests "Return the messages of deliveries again" and "Partition and position stay as they were"."""
        adapter = await session.open()
        sent = numbered(30)
        for number, body in enumerate(sent):
            await session.publish(adapter, body, partition=number, properties={"n": str(number)})
        reader = await session.reader(adapter)
        found = await reader.take(len(sent))
        await reader.settle(found[3:6])
        dropped = [each._replace(message=Message("")) for each in (*found[20:], *found[:3], *found[6:9])]
        pending = reader.subscription.fetch(1, LOTS)
        for some in (dropped, dropped[:1]):
            again = {(each.partition, each.position): each.message for each in await reader.fetch_again(some)}
            places = {(each.partition, each.position) for each in some}
            assert again == {place: each.message for place, each in reader.unsettled.items() if place in places}
        assert not pending.done(), "nothing was published"
        await session.publish(adapter, b"new")
        async with asyncio.timeout(GUARD):
            reader.add(new := await pending)
        assert bodies(new) == [b"new"]
        await reader.settle(found)
        await reader.close()
        later = await session.reader(adapter)
        assert bodies(await session.rest(adapter, later)) == [b"new"]

    async def test_what_was_fetched_again_is_kept_until_it_is_settled(self, session: Session) -> None:
        """Tests "fetched, not settled, and dropped by the engine", also "its message may be empty"."""
        adapter = await session.open()
        sent = numbered(6)
        await session.publish(adapter, *sent)
        reader = await session.reader(adapter)
        found = await reader.lease(await reader.take(len(sent)))
        dropped = [each._replace(message=Message("")) for each in found]
        await reader.fetch_again(dropped[:4])
        await reader.settle(dropped[2:3])
        reader.unsettled.update({(each.partition, each.position): each for each in dropped if each != dropped[2]})
        await reader.close()
        later = await session.reader(adapter)
        rest = await session.rest(adapter, later)
        assert [(each.message.body, each.attempts) for each in rest] == [(body, 1) for body in sent if body != sent[2]]

    async def test_closing_ends_a_fetch_through_its_future(self, session: Session) -> None:
        """Tests "The future, never the call, raises `BackendUnavailable`"."""
        adapter = await session.open()
        reader = await session.reader(adapter)
        pending = reader.subscription.fetch(1, LOTS)
        await reader.close()
        late = reader.subscription.fetch(1, LOTS)
        async with asyncio.timeout(GUARD):
            for future in (pending, late):
                with pytest.raises(BackendUnavailable):
                    await future
