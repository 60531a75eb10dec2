"""Tests for groups: which messages a group gets, and where it starts."""
# ruff: noqa: S101 - the kit's tests use assert, as all tests do

from adapters.testing.harness import Contract, Session, bodies, numbered


class GroupContract(Contract):
    """Part of `AdapterContract`."""

    async def test_each_group_gets_every_message(self, session: Session) -> None:
        """Tests "One group's view of one destination": settling in one group changes nothing for another."""
        adapter = await session.open()
        one = await session.reader(adapter, "one")
        two = await session.reader(adapter, "two")
        sent = numbered(10)
        await session.publish(adapter, *sent)
        first = await one.take(len(sent))
        await one.settle(first)
        assert bodies(first) == sent
        assert bodies(await two.take(len(sent))) == sent
        await two.close()
        again = await session.reader(adapter, "two")
        assert bodies(await again.take(len(sent))) == sent

    async def test_a_destination_has_its_own_messages(self, session: Session) -> None:
        """Tests "Join `group` on `source`, creating both on first use"."""
        adapter = await session.open()
        other = session.harness.name()
        here = await session.reader(adapter)
        there = await session.reader(adapter, source=other)
        await session.publish(adapter, b"there", destination=other)
        await session.publish(adapter, b"here")
        [delivery] = await here.take(1)
        assert (delivery.message.body, delivery.message.destination) == (b"here", session.destination)
        [delivery] = await there.take(1)
        assert (delivery.message.body, delivery.message.destination) == (b"there", other)

    async def test_a_new_group_starts_at_the_oldest_message(self, session: Session) -> None:
        """Tests "A group created after the first message starts at the oldest message still kept".

        Without `late_groups` it gets messages that are published from then on.
        """
        adapter = await session.open()
        await session.publish(adapter, *numbered(5, "old"))
        early = await session.reader(adapter, "early")
        await session.publish(adapter, *numbered(5, "new"))
        late = await session.reader(adapter, "late")
        await session.publish(adapter, b"last")
        kept = adapter.features.late_groups
        for reader, before in ((early, numbered(5, "new")), (late, [])):
            expected = [*numbered(5, "old"), *numbered(5, "new")] if kept else before
            assert bodies(await reader.take(len(expected) + 1)) == [*expected, b"last"]

    async def test_latest_starts_after_the_newest_message(self, session: Session) -> None:
        """Tests "or with `latest` after the newest; an existing one continues"."""
        adapter = await session.open()
        await session.publish(adapter, *numbered(5, "old"))
        reader = await session.reader(adapter, latest=True)
        await session.publish(adapter, *numbered(5, "new"))
        found = await reader.take(3)
        assert bodies(found) == numbered(3, "new")
        await reader.settle(found[:2])
        await reader.close()
        await session.publish(adapter, b"meanwhile")
        again = await session.reader(adapter, latest=True)
        assert bodies(await again.take(4)) == [*numbered(5, "new")[2:], b"meanwhile"]

    async def test_a_closed_group_keeps_its_position(self, session: Session) -> None:
        """Tests "The group and its state stay"."""
        adapter = await session.open()
        reader = await session.reader(adapter)
        await session.publish(adapter, *numbered(5, "before"))
        await reader.settle(await reader.take(5))
        await reader.close()
        sent = numbered(5, "meanwhile")
        await session.publish(adapter, *sent)
        again = await session.reader(adapter)
        assert bodies(await session.rest(adapter, again)) == sent
