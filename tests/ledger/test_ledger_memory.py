"""The ledger against the memory backend: with a journal all is well after `kill -9`, without it misses some."""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from tests.launch import Bridge
from tests.ledger.client import Where
from tests.ledger.run import Progress, run

MESSAGES = 3_000


@pytest.mark.parametrize("server", ["hypercorn", pytest.param("granian", marks=pytest.mark.extended)])
async def test_a_journal_keeps_everything(server: str, tmp_path: Path) -> None:
    with ExitStack() as bridges:
        backend = f"memory://?journal={tmp_path / 'journal'}"
        bridge = bridges.enter_context(Bridge(tmp_path, server=server, backend=backend))
        where = Where(bridge.url)

        async def story(progress: Progress) -> None:
            nonlocal bridge
            for part in (0.3, 0.6):
                await progress.reach(part)
                where.moved(None)
                await asyncio.to_thread(bridge.kill)
                bridge = await asyncio.to_thread(Bridge, tmp_path, server=server, backend=backend)
                bridges.enter_context(bridge)
                where.moved(bridge.url)

        for verdict in await run([where], f"ledger-{uuid4().hex}", MESSAGES, story):
            print(verdict)  # noqa: T201 - what the test is for
            assert verdict.good, str(verdict)
            assert verdict.counts["answered stored"] >= MESSAGES


@pytest.mark.extended
async def test_what_is_in_memory_only_is_missed(tmp_path: Path) -> None:
    with ExitStack() as bridges:
        bridge = bridges.enter_context(Bridge(tmp_path))
        where = Where(bridge.url)

        async def story(progress: Progress) -> None:
            await progress.reach(0.5)
            await asyncio.to_thread(bridge.kill)
            where.moved(bridges.enter_context(await asyncio.to_thread(Bridge, tmp_path)).url)

        for verdict in await run([where], f"ledger-{uuid4().hex}", MESSAGES, story, silence=2):
            assert verdict.lost, str(verdict)
