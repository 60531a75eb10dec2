"""Tests for an adapter with `features.durable`."""
# ruff: noqa: S101 - the kit's tests use assert, as all tests do

import asyncio
import os
import sys
from typing import Final

from adapters.testing import child
from adapters.testing.delays import EARLY, LATER
from adapters.testing.harness import GUARD, Contract, Session, bodies, numbered
from adapters.wall_clock import wall

_PROGRAM: Final = "import asyncio, sys; from adapters.testing import child; asyncio.run(child.use(*sys.argv[1:]))"
_PUBLISHED_BEFORE_KILL: Final = 20
"""Messages that the process must have published before it is killed."""


class DurableContract(Contract):
    """For an adapter with `features.durable`."""

    async def test_messages_and_attempts_survive_closing(self, session: Session) -> None:
        """Tests "Only durable backends get it, so that deliveryCount survives a restart"."""
        adapter = await session.open()
        sent = numbered(10)
        await session.publish(adapter, *sent)
        reader = await session.reader(adapter)
        found = await reader.take(len(sent))
        leased = await reader.lease(found[:4])
        await reader.settle(leased[:2])
        await reader.close(release=False)
        await adapter.close()
        again = await session.reader(await session.open())
        expected = list(zip(sent[2:], (1, 1, 0, 0, 0, 0, 0, 0), strict=True))
        assert [(each.message.body, each.attempts) for each in await again.take(8)] == expected

    async def test_a_delay_continues_after_closing(self, session: Session) -> None:
        """Tests "A message with a `due` time in the future must become visible no earlier than then"."""
        adapter = await session.open()
        await session.publish(adapter, b"delayed", delay_time=LATER)
        await adapter.close()
        reader = await session.reader(await session.open())
        [delivery] = await reader.take(1)
        assert delivery.message.body == b"delayed"
        assert wall() >= delivery.message.due - EARLY

    async def test_confirmed_messages_survive_a_kill(self, session: Session) -> None:
        """Tests "Messages, settlements and attempts survive `kill -9` of the bridge"."""
        confirmed = await _killed(session)
        adapter = await session.open()
        reader = await session.reader(adapter)
        found = await session.rest(adapter, reader)
        while child.DELAYED not in bodies(found):
            found += await reader.fetch()
        [delayed] = [each for each in found if each.message.body == child.DELAYED]
        found.remove(delayed)
        before = (*child.LEASED, child.UNTOUCHED)
        received = bodies(found)
        assert received[: len(before)] == list(before), "settled messages are not delivered again, the others are"
        assert [each.attempts > 0 for each in found[: len(child.LEASED)]] == [True] * len(child.LEASED)
        after = received[len(before) :]
        assert after[: len(confirmed)] == confirmed, "every stored message is delivered"
        assert len(after) <= len(confirmed) + 1, "and perhaps one that was not confirmed any more"


async def _killed(session: Session) -> list[bytes]:
    """Start another process that uses the backend, kill it, and return the bodies that were confirmed to it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROGRAM, session.harness.factory, session.harness.url, session.destination),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert process.stdout is not None
    confirmed: list[bytes] = []
    try:
        async with asyncio.timeout(GUARD):
            while len(confirmed) < _PUBLISHED_BEFORE_KILL:
                line = await process.stdout.readline()
                assert line, "the process ended before it was killed"
                confirmed.append(line)
    finally:
        if process.returncode is None:
            process.kill()
        rest, _ = await process.communicate()
    return confirmed + rest.splitlines(keepends=True)
