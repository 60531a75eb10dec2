"""Tests for messages with a delay, and for deferred deliveries."""
# ruff: noqa: S101 - the kit's tests use assert, as all tests do

import asyncio
from typing import Final

from adapters.base import Deferring
from adapters.testing.harness import GUARD, Contract, Session, bodies
from adapters.wall_clock import wall

EARLY: Final = 1_000
"""Milliseconds before its due time from which the kit accepts a delivery: the engine waits for the due time."""
SOON: Final = 2_500
LATER: Final = 3_500
_TRIES: Final = 3


class DelayContract(Contract):
    """Part of `AdapterContract`. Use it alone for a second way in which the same adapter delays messages."""

    async def test_a_delayed_message_takes_its_place_when_it_is_due(self, session: Session) -> None:
        """Tests "then takes its place in the order of its key", and that it is not delivered long before."""
        adapter = await session.open()
        reader = await session.reader(adapter)
        await session.publish(adapter, b"first", message_key="k", delay_time=1)
        await reader.settle(await reader.take(1))  # now the backend has created what it needs for delays
        for factor in range(1, _TRIES + 1):  # longer delays for a machine that is too busy to publish three in time
            first_due = wall() + SOON * factor
            await session.publish(adapter, b"later", message_key="k", delay_time=LATER * factor)
            await session.publish(adapter, b"soon", message_key="k", delay_time=SOON * factor)
            await session.publish(adapter, b"now", message_key="k")
            in_time = wall() < first_due
            found = await reader.take(1)
            assert not in_time or bodies(found) == [b"now"], "a delayed message must not block the others of its key"
            while len(found) < 3:  # noqa: PLR2004 - as many as were published
                [delivery] = await reader.take(1)
                assert wall() >= delivery.message.due - EARLY, "delivered long before it is due"
                assert delivery.attempts == 0
                found.append(delivery)
            await reader.settle(found)
            if in_time:
                assert bodies(found) == [b"now", b"soon", b"later"]
                return
        raise AssertionError("the backend took longer to store three messages than the first of them was delayed for")

    async def test_a_message_that_is_due_already_is_not_delayed(self, session: Session) -> None:
        """Tests "A message with a `due` time in the future": this one's is in the past."""
        adapter = await session.open()
        await session.publish(adapter, b"a", born_timestamp=wall() - 60_000, delay_time=1_000)
        reader = await session.reader(adapter)
        assert bodies(await reader.take(1)) == [b"a"]


class DeferringContract(Contract):
    """For an adapter whose subscriptions are `Deferring`."""

    async def test_only_its_group_gets_a_deferred_message_again(self, session: Session) -> None:
        """Tests "Only this group gets it again, with the `attempts` it carries, behind messages that arrived".

        Also "deliver its message again no earlier than `until`".
        """
        adapter = await session.open()
        reader = await session.reader(adapter)
        other = await session.reader(adapter, "other")
        [stored] = await session.publish(adapter, b"deferred")
        [delivery] = await reader.take(1)
        assert isinstance(reader.subscription, Deferring)
        until = wall() + SOON
        async with asyncio.timeout(GUARD):
            await reader.subscription.defer(delivery._replace(attempts=2), until)
        reader.unsettled.clear()
        await session.publish(adapter, b"meanwhile")
        in_time = wall() < until
        await reader.close()
        again = await session.reader(adapter)
        found = await again.take(2)
        assert wall() >= until, "the engine does not wait for `until`, so the adapter must"
        if in_time:
            assert bodies(found) == [b"meanwhile", b"deferred"]
        [deferred] = [each for each in found if each.message.body == b"deferred"]
        expected = delivery.message._replace(delivery_count=deferred.message.delivery_count)
        assert (deferred.message, deferred.attempts) == (expected, 2)
        await again.settle(found)
        assert await session.rest(adapter, again) == [], "it is delivered once"
        assert bodies(await session.rest(adapter, other)) == [b"deferred", b"meanwhile"]
        assert stored.partition in {None, delivery.message.partition}
