"""Tests for features, partitions, gauges and closing of an adapter."""
# ruff: noqa: S101 - the kit's tests use assert, as all tests do

import asyncio
import re

import pytest

from adapters.base import (
    Deferring,
    Deletable,
    Measured,
    MetadataStore,
    Partitioned,
    PublishesMany,
    Replayable,
    Support,
    Transactional,
)
from adapters.testing.delays import DeferringContract
from adapters.testing.deleting import DeletableContract
from adapters.testing.durable import DurableContract
from adapters.testing.harness import GUARD, Contract, Session, bodies, numbered
from adapters.testing.metadata_store import MetadataStoreContract
from adapters.testing.publishing import PublishesManyContract
from adapters.testing.replay import ReplayableContract
from adapters.testing.shared import SharedContract
from adapters.testing.transactions import TransactionalContract
from bridge.errors import DestinationUnknown
from bridge.message import FIELDS


class FeaturesAndClosingContract(Contract):
    """Part of `AdapterContract`."""

    async def test_the_test_class_has_the_mix_in_of_every_feature(self, session: Session) -> None:
        """Tests "Code and tests read these, and never check an adapter's name".

        A test class that lacks the mix-in for something that the adapter offers, or has one too many, fails here.
        """
        adapter = await session.open()
        reader = await session.reader(adapter)
        offered = {
            DurableContract: adapter.features.durable,
            SharedContract: adapter.features.shared_groups,
            MetadataStoreContract: isinstance(adapter, MetadataStore),
            ReplayableContract: isinstance(adapter, Replayable),
            PublishesManyContract: isinstance(adapter, PublishesMany),
            DeletableContract: isinstance(adapter, Deletable),
            TransactionalContract: isinstance(adapter, Transactional),
            DeferringContract: isinstance(reader.subscription, Deferring),
        }
        needed = {contract.__name__ for contract, is_offered in offered.items() if is_offered}
        assert {contract.__name__ for contract in offered if isinstance(self, contract)} == needed

    async def test_features_name_every_field_that_asks_for_something(self, session: Session) -> None:
        """Tests "By the specification's name, every field of `FIELDS` that requests a behaviour"."""
        fields = session.harness.connect().features.fields
        assert {field.name for field in FIELDS if field.is_feature} <= set(fields)
        assert all(isinstance(support, Support) for support in fields.values())

    async def test_the_number_of_partitions_stays(self, session: Session) -> None:
        """Tests "Return the number of partitions (>= 1). Cheap once known"."""
        adapter = await session.open()
        if not isinstance(adapter, Partitioned):
            return
        async with asyncio.timeout(GUARD):
            counts = await asyncio.gather(*(adapter.partitions(session.destination) for _ in range(10)))
        assert counts == [counts[0]] * len(counts)
        assert counts[0] >= 1
        assert adapter.known_partitions(session.destination) in {counts[0], None}
        sent = numbered(counts[0])
        for number, body in enumerate(sent):
            await session.publish(adapter, body, partition=number)
        reader = await session.reader(adapter)
        found = await reader.take(len(sent))
        assert {each.message.partition: each.message.body for each in found} == dict(enumerate(sent))

    async def test_a_destination_that_may_not_be_created_is_not(self, session: Session) -> None:
        """Tests "without `create` nothing is created, and `DestinationUnknown` is raised"."""
        adapter = await session.open()
        if not isinstance(adapter, Partitioned):
            return
        for _ in range(2):
            with pytest.raises(DestinationUnknown):
                await adapter.partitions(session.destination, create=False)
        assert await session.partitions(adapter) == adapter.new_partitions
        assert await adapter.partitions(session.destination, create=False) == adapter.new_partitions

    async def test_figures_are_few_and_not_named_by_clients(self, session: Session) -> None:
        """Tests "by its name (lower_snake_case, few, never from a client's input)"."""
        adapter = await session.open()
        if not isinstance(adapter, Measured):
            return
        await session.publish(adapter, b"a")
        reader = await session.reader(adapter, "a_group")
        await reader.take(1)
        gauges, totals = adapter.gauges(), adapter.totals()
        few = 50
        assert len(adapter.help_texts) <= few
        assert not gauges.keys() & totals.keys()
        for name, value in (*gauges.items(), *totals.items()):
            assert adapter.help_texts[name]
            assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
            assert type(value) is int
        for name in adapter.help_texts:
            assert "a_group" not in name
            assert session.destination.replace("-", "_") not in name

    async def test_closing_twice_is_harmless(self, session: Session) -> None:
        """Tests "Flush accepted messages and free every resource. Idempotent"."""
        adapter = await session.open()
        await session.publish(adapter, b"a")
        reader = await session.reader(adapter)
        await reader.close()
        async with asyncio.timeout(GUARD):
            await adapter.close()
            await adapter.close()

    async def test_closing_an_adapter_that_was_not_started_is_harmless(self, session: Session) -> None:
        """Tests "The engine also closes an adapter whose start has failed"."""
        adapter = session.harness.connect()
        async with asyncio.timeout(GUARD):
            await adapter.close()

    async def test_closing_stores_accepted_messages(self, session: Session) -> None:
        """Tests "Flush accepted messages"."""
        adapter = await session.open()
        messages = [await session.message(adapter, body) for body in numbered(20)]
        futures = [adapter.publish(each) for each in messages]
        async with asyncio.timeout(GUARD):
            await adapter.close()
            await asyncio.wait(futures)
        stored = [each.body for each, future in zip(messages, futures, strict=True) if future.exception() is None]
        assert stored == numbered(20), "a working backend stores the messages that it has accepted"
        if adapter.features.durable:
            reader = await session.reader(await session.open())
            assert bodies(await reader.take(len(stored))) == stored
