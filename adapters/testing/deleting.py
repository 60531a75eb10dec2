"""Tests for an adapter that is `Deletable`."""
# ruff: noqa: S101 - the kit's tests use assert, as all tests do

import asyncio

import pytest

from adapters.base import Adapter, Deferring, Deletable
from adapters.testing.harness import GUARD, Contract, Session, bodies
from adapters.wall_clock import wall
from bridge.errors import DestinationUnknown

_DAY = 24 * 3600 * 1000
_SOON = 1_000
_DELAY = 12_000


class DeletableContract(Contract):
    """For an adapter that is `Deletable`."""

    async def test_a_purge_drops_every_message_of_a_destination(self, session: Session) -> None:
        """Tests "Drop every message that is stored now"."""
        adapter = await session.open()
        reader = await session.reader(adapter)
        await session.publish(adapter, b"a", b"b")
        await reader.settle(await reader.take(1))
        await session.publish(adapter, b"later", delay_time=_DAY)
        await reader.close()
        await _change(adapter, "purge", session.destination)
        await session.publish(adapter, b"new")
        for group in ("group", "another"):
            again = await session.reader(adapter, group)
            assert bodies(await session.rest(adapter, again)) == [b"new"]

    async def test_a_purge_of_a_group_settles_its_messages_only(self, session: Session) -> None:
        """Tests "with a group, settle them for that group"."""
        adapter = await session.open()
        reader = await session.reader(adapter)
        other = await session.reader(adapter, "other")
        await session.publish(adapter, b"a", b"b")
        await reader.close()
        await _change(adapter, "purge", session.destination, "group")
        await session.publish(adapter, b"new")
        again = await session.reader(adapter)
        assert bodies(await session.rest(adapter, again)) == [b"new"]
        assert bodies(await session.rest(adapter, other)) == [b"a", b"b", b"new"]

    async def test_a_deleted_group_starts_anew(self, session: Session) -> None:
        """Tests "Remove a destination with its messages and groups, or one group of it"."""
        adapter = await session.open()
        reader = await session.reader(adapter)
        await session.publish(adapter, b"a")
        await reader.settle(await reader.take(1))
        await reader.close()
        await _change(adapter, "delete", session.destination, "group")
        with pytest.raises(DestinationUnknown):
            await _change(adapter, "delete", session.destination, "group")
        await session.publish(adapter, b"b")
        again = await session.reader(adapter)
        expected = [b"a", b"b"] if adapter.features.late_groups else [b"b"]
        assert bodies(await session.rest(adapter, again))[-len(expected) :] == expected

    async def test_a_deleted_destination_is_created_anew(self, session: Session) -> None:
        """Tests "The next use creates it anew", also after a restart if the backend is durable."""
        adapter = await session.open()
        reader = await session.reader(adapter)
        await session.publish(adapter, b"a", b"b")
        await session.publish(adapter, b"later", delay_time=_DAY)
        await reader.close()
        await _change(adapter, "delete", session.destination)
        with pytest.raises(DestinationUnknown):
            await _change(adapter, "delete", session.destination)
        if adapter.features.durable:
            await adapter.close()
            adapter = await session.open()
        with pytest.raises(DestinationUnknown):
            await _change(adapter, "purge", session.destination, "group")
        await session.publish(adapter, b"new")
        again = await session.reader(adapter)
        assert bodies(await session.rest(adapter, again)) == [b"new"]


class DeletableDelayContract(Contract):
    """For the same adapter; each test waits for messages that are due after some seconds."""

    @pytest.mark.parametrize("how", ["purge", "delete"])
    async def test_delayed_messages_are_dropped(self, session: Session, how: str) -> None:
        """Tests "For a destination they are dropped, too, also those that another bridge has accepted"."""
        adapter = await session.open()
        other = await session.open() if adapter.features.shared_groups else adapter
        reader = await session.reader(other)
        await session.publish(other, b"deferred")
        [delivery] = await reader.take(1)
        due = wall() + _DELAY
        if isinstance(reader.subscription, Deferring):
            async with asyncio.timeout(GUARD):
                await reader.subscription.defer(delivery, due)
            reader.unsettled.clear()
        for part in range(await session.partitions(other)):
            for body, delay in ((b"soon", _SOON), (b"later", _DELAY)):
                born = due - _DELAY
                await session.publish(other, body, partition=part, born_timestamp=born, delay_time=delay)
        await reader.close()
        await _change(adapter, how, session.destination)
        assert wall() < due, "the purge took longer than the delay"
        await session.publish(adapter, b"new")
        await session.publish(other, b"delayed", born_timestamp=due - _DELAY, delay_time=_DELAY + 1000)
        again = await session.reader(adapter)
        assert bodies(await again.take(2)) == [b"new", b"delayed"]
        assert await session.rest(adapter, again) == []


async def _change(adapter: Adapter, how: str, destination: str, group: str | None = None) -> None:
    assert isinstance(adapter, Deletable)
    async with asyncio.timeout(GUARD):
        await (adapter.purge if how == "purge" else adapter.delete)(destination, group)
