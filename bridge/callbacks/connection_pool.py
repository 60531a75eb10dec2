"""The open connections to endpoints: which of them may serve the next POST, and when the idle ones close."""

import asyncio
from typing import Final

from bridge.callbacks.connection import EndpointConnection
from bridge.callbacks.dialer import Dialer
from bridge.callbacks.targets import Origin, Target

IDLE_SECONDS: Final = 4.0
"""How long a connection waits for its next POST: less than the 5 s after which Node and uvicorn close theirs."""
REUSABLE_MAX: Final = 256
"""Connections that may serve further POSTs; each connection beyond that serves one."""


class ConnectionPool:
    """Hands out connections: the one that was used last, or else a new one."""

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._idle: dict[Origin, list[EndpointConnection]] = {}
        """By origin, those that were used last at the end. Never an empty list."""
        self._open: set[EndpointConnection] = set()
        """All that may serve further POSTs, idle or not."""
        self._sweep: asyncio.TimerHandle | None = None

    def take_idle(self, origin: Origin) -> EndpointConnection | None:
        """Return an open connection that no POST uses; None if there is none."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if not idle:
                del self._idle[origin]
            if connection.usable:
                return connection
        return None

    async def connect(self, target: Target) -> EndpointConnection:
        """Open a connection. Raises `RequestBlocked` and `NoResponse`."""
        connection = await self._dialer.connect(target, lambda: EndpointConnection(self._open.discard))
        if connection.usable and len(self._open) < REUSABLE_MAX:
            self._open.add(connection)
        return connection

    def give_back(self, origin: Origin, connection: EndpointConnection) -> None:
        """Keep a connection for the next POST, if it can serve one."""
        if connection not in self._open:
            connection.abort()
        elif connection.usable:
            self._idle.setdefault(origin, []).append(connection)
            if self._sweep is None:
                self._sweep = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._close_idle)

    def close(self) -> None:
        """Close the idle connections."""
        if self._sweep is not None:
            self._sweep.cancel()
        for idle in self._idle.values():
            for connection in idle:
                connection.abort()
        self._idle.clear()

    def _close_idle(self) -> None:
        """Close what has waited `IDLE_SECONDS`, and wait for the connection that is next."""
        loop = asyncio.get_running_loop()
        now, self._sweep = loop.time(), None
        for origin, idle in list(self._idle.items()):
            for connection in idle:
                if now - connection.idle_since >= IDLE_SECONDS:
                    connection.abort()
            self._idle[origin] = [connection for connection in idle if connection.usable]
            if not self._idle[origin]:
                del self._idle[origin]
        if self._idle:
            oldest = min(idle[0].idle_since for idle in self._idle.values())
            self._sweep = loop.call_at(oldest + IDLE_SECONDS, self._close_idle)
