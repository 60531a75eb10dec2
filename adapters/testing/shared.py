"""Tests for an adapter with `features.shared_groups`: several bridges serve one group."""
# ruff: noqa: S101 - the kit's tests use assert, as all tests do

import asyncio
from collections.abc import Sequence
from typing import Final

from adapters.base import Adapter, Delivery
from adapters.testing.harness import GUARD, LOTS, Contract, KitReader, Session, bodies, numbered

_POLL: Final = 0.05
"""Seconds for which the kit waits for one of two readers before it asks the other."""


class SharedContract(Contract):
    """For an adapter with `features.shared_groups`. The test backend needs two partitions or more."""

    async def test_partitions_go_to_a_second_bridge_and_back(self, session: Session) -> None:
        """Tests "Bridges on the same backend serve a group together, each with its share of the partitions".

        Also that the backend keeps what `Revoked` returns: "the deliveries that were not settled, with the attempts".
        """
        first_bridge, second_bridge = await session.open(), await session.open()
        count = await session.partitions(first_bridge)
        assert count > 1, "the kit needs two partitions or more, so that both bridges can get one"
        first = await session.reader(first_bridge)
        sent = await _one_for_each(session, first_bridge, "a")
        before = await first.take(count)
        assert sorted(bodies(before)) == sent
        for each in before:  # as if it had been delivered twice: `revoked` returns this count
            first.unsettled[each.partition, each.position] = each._replace(attempts=2)

        second = await session.reader(second_bridge)
        async with asyncio.timeout(GUARD):
            await first.was_revoked.wait()
        moved: list[Delivery] = []
        while len(first.unsettled) + len(moved) < count:
            moved += await second.fetch()
        kept = list(first.unsettled.values())
        assert 0 < len(kept) < count, "each bridge has a share"
        assert sorted(bodies([*kept, *moved])) == sent, "each message is with one bridge"
        assert [each.attempts for each in moved] == [2] * len(moved)
        await first.settle(kept)
        await second.settle(moved)

        sent = await _one_for_each(session, first_bridge, "b")
        shares = await _both(first, second, count)
        assert sorted(bodies([*shares[0], *shares[1]])) == sent
        assert {each.partition for each in shares[0]} == {each.partition for each in kept}
        await second.settle(shares[1])

        await first.close()
        sent = await _one_for_each(session, first_bridge, "c")
        rest = await second.take(len(shares[0]) + count)
        assert sorted(bodies(rest)) == sorted([*bodies(shares[0]), *sent]), (
            "released messages are delivered with the others"
        )


async def _one_for_each(session: Session, adapter: Adapter, prefix: str) -> list[bytes]:
    """Publish a message to each partition."""
    sent = numbered(await session.partitions(adapter), prefix)
    for number, body in enumerate(sent):
        await session.publish(adapter, body, partition=number)
    return sent


async def _both(first: KitReader, second: KitReader, count: int) -> tuple[Sequence[Delivery], Sequence[Delivery]]:
    """Fetch with both until there are so many in all."""
    found: tuple[list[Delivery], list[Delivery]] = ([], [])
    async with asyncio.timeout(GUARD):
        while sum(map(len, found)) < count:
            for reader, received in zip((first, second), found, strict=True):
                future = reader.subscription.fetch(100, LOTS)
                await asyncio.wait((future,), timeout=_POLL)
                if not future.cancel():
                    reader.add(future.result())
                    received.extend(future.result())
    return found
