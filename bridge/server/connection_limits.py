"""Limits of connections that both servers, Hypercorn and Granian, apply, and which connections they accept.

Pure: no I/O and no clock.
"""

import logging
from collections import Counter
from collections.abc import Callable, Container
from typing import Final

logger = logging.getLogger(__name__)

BACKLOG = 1024
"""Connections that the kernel queues while the event loop is busy."""

MAX_STREAMS = 128
"""Requests that one HTTP/2 connection may have open at a time."""

KEEP_ALIVE = 75.0
"""Seconds after which an idle connection is closed: longer than the connection pools of common clients wait."""

PING_INTERVAL = 30.0
"""Seconds between pings of an HTTP/2 client. Granian counts from the last frame, Hypercorn from the last ping."""

PING_TIMEOUT = 20.0
"""Seconds in which an HTTP/2 client must answer a ping. After that its connection is closed."""

ALL: Final = "all"
"""Stands for all clients in the log."""
ALMOST: Final = 0.9
"""Part of a limit below which the next refusal is logged again."""


class Admission:
    """Counts the connections of one port by client."""

    def __init__(self, limit: int, percent: int, client_of: Callable[[str], str]) -> None:
        """`limit`: connections of all clients; one may have `percent` of it. `client_of`: the client of a host."""
        self.limit = limit
        self._of_one = max(1, limit * percent // 100)
        self._client_of = client_of
        self._clients: Counter[str] = Counter()
        self.connections = 0
        """Connections counted now."""
        self._logged: set[str] = set()
        """The clients whose refusals are logged already; `ALL` for the limit of all clients."""

    def accept(self, host: str) -> bool:
        """Count a connection of the client at `host`. False, and it is not counted: close it."""
        client = self._client_of(host)
        if self.connections >= self.limit:
            self._log(ALL, self.limit)
            return False
        if self._clients[client] >= self._of_one:
            self._log(client, self._of_one)
            return False
        self._clients[client] += 1
        self.connections += 1
        return True

    def release(self, host: str) -> None:
        """Count a connection as closed."""
        client = self._client_of(host)
        self.connections -= 1
        self._clients[client] -= 1
        if self._clients[client] < self._of_one * ALMOST:
            self._logged.discard(client)
        if self.connections < self.limit * ALMOST:
            self._logged.discard(ALL)
        if not self._clients[client]:
            del self._clients[client]

    def _log(self, client: str, limit: int) -> None:
        if client not in self._logged:
            self._logged.add(client)
            logger.warning("connections are refused: a limit is reached", extra={"client": client, "limit": limit})


class IdleConnections:
    """Since when each connection has had no request."""

    def __init__(self, timeout: float) -> None:
        """`timeout`: seconds after which a connection without a request is idle for too long."""
        self._timeout = timeout
        self._since: dict[int, float] = {}

    def is_too_long(self, connection: int, now: float, *, busy: bool) -> bool:
        """Note whether a connection was `busy` since the last call. Returns whether to close it."""
        since = self._since.setdefault(connection, now)
        if busy:
            self._since[connection] = now
        return not busy and now - since > self._timeout

    def forget_others(self, connections: Container[int]) -> None:
        """Forget the connections that are closed: all but `connections`."""
        self._since = {each: since for each, since in self._since.items() if each in connections}
