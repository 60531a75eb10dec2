"""A backend that confirms some messages only on request, for settings that bound what is being published.

It is the memory backend, installed as any other adapter is. What goes to a destination whose name begins with `held`
is confirmed once a new group pulls from `release`.
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from adapters.base import Published, Revoked, Stored
from adapters.memory.adapter import MemoryAdapter
from adapters.memory.options import parse
from adapters.memory.subscription import MemorySubscription
from bridge.message import Message

ROOT: Final = Path(__file__).parents[2]


class HeldAdapter(MemoryAdapter):
    """Memory that keeps producers waiting."""

    def __init__(self) -> None:
        super().__init__(parse("memory://"))
        self._waiting: list[tuple[Message, asyncio.Future[Stored]]] = []

    def publish(self, message: Message) -> asyncio.Future[Stored]:
        if not message.destination.startswith("held"):
            return super().publish(message)
        future: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        self._waiting.append((message, future))
        return future

    def publish_many(self, messages: Sequence[Message]) -> Sequence[Published]:
        return [self.publish(message) for message in messages]

    async def subscribe(self, source: str, group: str, revoked: Revoked, *, latest: bool = False) -> MemorySubscription:
        if source == "release":
            waiting, self._waiting = self._waiting, []
            for held, future in waiting:
                future.set_result(super().publish(held).result())
        return await super().subscribe(source, group, revoked, latest=latest)


def connect(_url: str) -> HeldAdapter:
    """Build the adapter for `held://`."""
    return HeldAdapter()


def install(directory: Path) -> dict[str, str]:
    """Write what an installed adapter leaves in its environment; return the variables that make a bridge see it."""
    info = directory / "oms_held-1.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: oms-held\nVersion: 1\n", "utf-8")
    (info / "entry_points.txt").write_text(
        "[openmessaging_bridge.adapters]\nheld = tests.settings.held_backend:connect\n", "utf-8"
    )
    path = [str(directory), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path)}
