"""Tests for an adapter that is a `MetadataStore`."""
# ruff: noqa: S101 - the kit's tests use assert, as all tests do

import asyncio
from typing import Final
from uuid import uuid4

import pytest

from adapters.base import Adapter, MetadataStore
from adapters.testing.harness import GUARD, Contract, Session
from bridge.errors import BackendUnavailable

_TEXT: Final = "zürich ✓ '\"\n\\ {}"


class MetadataStoreContract(Contract):
    """For an adapter that is a `MetadataStore`."""

    async def test_entries_are_written_replaced_and_deleted(self, session: Session) -> None:
        """Tests "Write or replace an entry, or with None delete it; durable when this returns"."""
        adapter = await session.open()
        store = _metadata_store(adapter)
        own = f"kit-{uuid4().hex}/"
        async with asyncio.timeout(GUARD):
            for key, value in {"a": "1", "b ü/c": _TEXT, "empty": "", "deleted": "4"}.items():
                await store.put(own + key, value)
            await store.put(own + "a", "2")
            await store.put(own + "deleted", None)
            await store.put(own + "never written", None)
        expected = {own + "a": "2", own + "b ü/c": _TEXT, own + "empty": ""}
        assert _own(store, own) == expected
        if adapter.features.durable:
            await adapter.close()
            again = _metadata_store(await session.open())
            assert _own(again, own) == expected
            async with asyncio.timeout(GUARD):
                await again.put(own + "a", None)
            assert _own(again, own).keys() == expected.keys() - {own + "a"}

    async def test_entries_are_unavailable_before_the_start(self, session: Session) -> None:
        """Tests "Return every entry by its key. Raises `BackendUnavailable` before the start"."""
        store = _metadata_store(session.harness.connect())
        with pytest.raises(BackendUnavailable):
            store.all()

    async def test_the_place_of_the_entries_has_a_name(self, session: Session) -> None:
        """Tests "Where the entries are stored, in one word for people"."""
        stored_in = _metadata_store(session.harness.connect()).stored_in
        assert stored_in.split() == [stored_in]


def _metadata_store(adapter: Adapter) -> MetadataStore:
    assert isinstance(adapter, MetadataStore)
    return adapter


def _own(store: MetadataStore, prefix: str) -> dict[str, str]:
    """Return this test's entries; the store may have others."""
    return {key: value for key, value in store.all().items() if key.startswith(prefix)}
