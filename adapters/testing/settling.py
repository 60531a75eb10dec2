"""Tests for `Subscription.settle` and for closing a subscription."""
# ruff: noqa: S101 - the kit's tests use assert, as all tests do

import asyncio
from contextlib import suppress

from adapters.base import Outcome
from adapters.testing.harness import GUARD, Contract, Session, bodies, numbered
from bridge.errors import BackendUnavailable


class SettleContract(Contract):
    """Part of `AdapterContract`."""

    async def test_settled_messages_are_not_delivered_again(self, session: Session) -> None:
        """Tests "Done for this group: acknowledged, expired, or confirmed in the dead-letter destination"."""
        adapter = await session.open()
        sent = numbered(10)
        await session.publish(adapter, *sent)
        reader = await session.reader(adapter)
        found = await reader.take(len(sent))
        kept = {1, 4, 5, 9}
        await reader.settle(each for number, each in enumerate(found) if number not in kept)
        await reader.close()
        again = await session.reader(adapter)
        rest = await session.rest(adapter, again)
        assert bodies(rest) == [sent[number] for number in sorted(kept)]
        ids = {each.message.body: each.message.message_id for each in found}
        assert all(ids[each.message.body] == each.message.message_id for each in rest), (
            "the message id must be the same each time"
        )

    async def test_settling_twice_is_harmless(self, session: Session) -> None:
        """Tests "Settling twice, or settling a message that the backend no longer keeps, is harmless"."""
        adapter = await session.open()
        sent = numbered(4)
        await session.publish(adapter, *sent)
        reader = await session.reader(adapter)
        first, second, third, fourth = await reader.take(len(sent))
        settle = reader.subscription.settle
        async with asyncio.timeout(GUARD):
            await asyncio.gather(settle([second], Outcome.SETTLED), settle([second], Outcome.SETTLED))
            await settle([first, first, second], Outcome.SETTLED)
            await settle([first], Outcome.SETTLED)
            await settle([second], Outcome.LEASED)
            await settle([second], Outcome.RELEASED)
        reader.unsettled = {(each.partition, each.position): each for each in (third, fourth)}
        await reader.close()
        again = await session.reader(adapter)
        assert bodies(await session.rest(adapter, again)) == sent[2:]

    async def test_settling_after_closing_fails_or_is_recorded(self, session: Session) -> None:
        """Tests "The future raises `BackendUnavailable` (not recorded) or `OutcomeUnknown`"."""
        adapter = await session.open()
        await session.publish(adapter, b"a")
        reader = await session.reader(adapter)
        found = await reader.take(1)
        await reader.close()
        future = reader.subscription.settle(found, Outcome.SETTLED)
        recorded = False
        async with asyncio.timeout(GUARD):
            with suppress(BackendUnavailable):
                await future
                recorded = True
        again = await session.reader(adapter)
        assert bodies(await session.rest(adapter, again)) == ([] if recorded else [b"a"])

    async def test_released_messages_are_delivered_again_with_their_attempts(self, session: Session) -> None:
        """Tests "Returned unsettled with the `attempts` it carries"."""
        adapter = await session.open()
        sent = numbered(4)
        await session.publish(adapter, *sent)
        reader = await session.reader(adapter)
        first, second, *_ = await reader.take(len(sent))
        reader.unsettled[first.partition, first.position] = first._replace(attempts=3)
        reader.unsettled[second.partition, second.position] = second._replace(attempts=1)
        await reader.close()
        again = await session.reader(adapter)
        found = await again.take(len(sent))
        assert [(each.message.body, each.attempts) for each in found] == list(zip(sent, (3, 1, 0, 0), strict=True))
        await again.lease(found[:1])
        await again.close()
        last = await session.reader(adapter)
        assert [each.attempts for each in await last.take(len(sent))] == [4, 1, 0, 0]

    async def test_closing_a_subscription_twice_is_harmless(self, session: Session) -> None:
        """Tests "Stop fetching and free the subscription's resources. The group and its state stay. Idempotent"."""
        adapter = await session.open()
        await session.publish(adapter, b"a")
        reader = await session.reader(adapter)
        await reader.take(1)
        await reader.close()
        async with asyncio.timeout(GUARD):
            await reader.subscription.close()
        again = await session.reader(adapter)
        async with asyncio.timeout(GUARD):
            await reader.subscription.close()
        assert bodies(await again.take(1)) == [b"a"]
