"""Tests for a full backend, and for one that does not answer; the harness has their URLs."""
# ruff: noqa: S101 - the kit's tests use assert, as all tests do

import asyncio
from typing import Final

import pytest

from adapters.testing.harness import GUARD, Contract, Session, bodies
from bridge.errors import BackendFull, BackendUnavailable

_MOST: Final = 1_000
_PADDING: Final = b"." * 1_000


class FullContract(Contract):
    """For a harness with a `full_url`."""

    async def test_a_full_backend_refuses_and_keeps_its_messages(self, session: Session) -> None:
        """Tests "It raises `NotStored` only if that is certain": refused messages are not delivered, others are."""
        adapter = await session.open(session.harness.full_url)
        reader = await session.reader(adapter)
        stored: list[bytes] = []
        refused: list[bytes] = []
        for number in range(_MOST + 5):
            body = b"%d %b" % (number, _PADDING)
            try:
                await session.publish(adapter, body)
            except BackendFull:
                refused.append(body)
                if len(refused) == 3:  # noqa: PLR2004 - being refused changes nothing
                    break
            else:
                stored.append(body)
        assert refused, f"the backend took {len(stored)} messages"
        assert stored
        found = await reader.take(len(stored))
        assert bodies(found) == stored
        await reader.settle(found)
        await session.publish(adapter, b"space again")
        assert bodies(await reader.take(1)) == [b"space again"]


class UnreachableContract(Contract):
    """For a harness with an `unreachable_url`."""

    async def test_a_backend_that_does_not_answer_is_unavailable(self, session: Session) -> None:
        """Tests "Raises `BackendUnavailable`; the engine calls again after a pause"."""
        adapter = session.harness.connect(session.harness.unreachable_url)
        try:
            async with asyncio.timeout(GUARD):
                for _ in range(2):
                    with pytest.raises(BackendUnavailable):
                        await adapter.start()
        finally:
            async with asyncio.timeout(GUARD):
                await adapter.close()
