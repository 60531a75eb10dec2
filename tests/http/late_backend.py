"""A backend that cannot be reached until a file says otherwise: the memory backend, installed as any other adapter.

While the file `FILE.joining` exists, it does not complete the opening of a group, as a broker that rebalances.
"""

import asyncio
import os
from pathlib import Path
from typing import Final

from adapters.base import Revoked
from adapters.memory.adapter import MemoryAdapter
from adapters.memory.options import parse
from adapters.memory.subscription import MemorySubscription
from bridge.errors import BackendUnavailable, CannotStart

ROOT: Final = Path(__file__).parents[2]


class LateAdapter(MemoryAdapter):
    """Memory that starts as soon as its file holds `ready`, and never if it holds anything else."""

    def __init__(self, file: Path) -> None:
        super().__init__(parse("memory://"))
        self._file = file

    async def start(self) -> None:
        if not self._file.exists():
            raise BackendUnavailable("The broker is away.")
        if (text := self._file.read_text("utf-8")) != "ready":
            raise CannotStart(text)
        await super().start()

    async def subscribe(self, source: str, group: str, revoked: Revoked, *, latest: bool = False) -> MemorySubscription:
        while self._file.with_suffix(".joining").exists():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
        return await super().subscribe(source, group, revoked, latest=latest)


def connect(url: str) -> LateAdapter:
    """Build the adapter for `late://FILE`."""
    return LateAdapter(Path(url.removeprefix("late://")))


def install(directory: Path) -> dict[str, str]:
    """Write the metadata of an installed adapter; return the variables with which a bridge finds it."""
    info = directory / "oms_late-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: oms-late\nVersion: 1\n", "utf-8")
    (info / "entry_points.txt").write_text(
        "[openmessaging_bridge.adapters]\nlate = tests.http.late_backend:connect\n", "utf-8"
    )
    path = [str(directory), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path)}
