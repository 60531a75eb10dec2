"""The bridges of a run: each restarts again and again, under one name for its clients."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.launch import Bridge
from tests.ledger.client import Where


class Stage:
    """Starts, stops and kills them; those that wait for one learn where it is."""

    def __init__(
        self,
        directory: Path,
        backends: Mapping[Where, str],
        closing: ExitStack,
        *,
        server: str = "hypercorn",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`backends`: the URL that each is started with; `settings`: OMS_* variables of all."""
        self._directory = directory
        self._backends = backends
        self._server = server
        self._settings = settings
        self._closing = closing
        self._bridges: dict[Where, Bridge] = {}

    async def start(self, where: Where) -> None:
        """Start a bridge and say where it is."""
        bridge = await asyncio.to_thread(
            Bridge,
            self._directory,
            server=self._server,
            backend=self._backends[where],
            settings=self._settings,
        )
        self._closing.enter_context(bridge)
        self._bridges[where] = bridge
        where.moved(bridge.url)

    async def kill(self, where: Where) -> None:
        """End a bridge with SIGKILL."""
        where.moved(None)
        await asyncio.to_thread(self._bridges[where].kill)

    async def stop(self, where: Where) -> None:
        """End a bridge with SIGTERM: it gives back what it has leased, and leaves the group."""
        where.moved(None)
        assert await asyncio.to_thread(self._bridges[where].terminate) == 0
