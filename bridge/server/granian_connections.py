"""The connections of Granian: closed if they are too many or idle, and at the end of a stop.

Granian does not show its connections, so they are found among the open files of the process, once a second.
"""

import asyncio
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bridge.server import connection_limits
from bridge.server.connection_limits import Admission, IdleConnections
from bridge.server.granian_dispatcher import Dispatcher

INTERVAL: Final = 1.0
"""Seconds between two looks at the connections."""
SLICE: Final = 256
"""Files that are looked at before requests have their turn: about a millisecond."""


class ConnectionWatch:
    """Looks at the connections of one port until it is cancelled."""

    def __init__(self, address: tuple[Any, ...], dispatcher: Dispatcher, admission: Admission) -> None:
        self._address = address
        self._dispatcher = dispatcher
        self._admission = admission
        self._idle = IdleConnections(connection_limits.KEEP_ALIVE)
        self._clients: dict[int, tuple[str, str]] = {}
        """Host and port of each accepted client, as Granian writes them, by the number (inode) of its socket."""

    async def run(self) -> None:
        """Close what is too many or idle, once every `INTERVAL`."""
        while True:
            await asyncio.sleep(INTERVAL)
            with suppress(OSError):  # the process has no descriptor left to list its files: again at the next look
                await self._look()

    async def _look(self) -> None:
        requested, now = self._dispatcher.take_requested(), asyncio.get_running_loop().time()
        there: set[int] = set()
        for number, descriptor in enumerate(_descriptors(), 1):
            try:
                self._check(descriptor, there, requested, now)
            except (OSError, IndexError):
                continue  # no connection of this port, or closed meanwhile
            if number % SLICE == 0:
                await asyncio.sleep(0)
        for closed in self._clients.keys() - there:
            self._admission.release(self._clients.pop(closed)[0])
        self._idle.forget_others(there)

    def _check(self, descriptor: int, there: set[int], requested: set[Any], now: float) -> None:
        status = os.fstat(descriptor)
        inode = status.st_ino
        client = self._clients.get(inode)
        if client is None:
            if not stat.S_ISSOCK(status.st_mode):
                return
            with socket.socket(fileno=os.dup(descriptor)) as accepted:
                if not is_accepted_on(accepted, self._address):
                    return
                host, port = accepted.getpeername()[:2]
                client = host, str(port)
                if not self._admission.accept(host):
                    accepted.shutdown(socket.SHUT_RDWR)
                    return
            self._clients[inode] = client
        there.add(inode)
        if self._idle.is_too_long(inode, now, busy=client in requested or client in self._dispatcher.unanswered):
            with socket.socket(fileno=os.dup(descriptor)) as accepted:
                accepted.shutdown(socket.SHUT_RDWR)


def _descriptors() -> list[int]:
    return [int(entry.name) for entry in Path("/dev/fd").iterdir()]


def is_accepted_on(candidate: socket.socket, address: tuple[Any, ...]) -> bool:
    """Whether a socket is a connection that was accepted on `address`. Raises OSError if it is not connected."""
    return bool(candidate.getsockname()[1:2] == address[1:2] and candidate.getpeername())


def shut_down_all(address: tuple[Any, ...]) -> None:
    """Shut down every connection that was accepted on `address`, which Granian has no call for."""
    for descriptor in _descriptors():
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue  # `socket` would raise an exception and leave the copy open
            with socket.socket(fileno=os.dup(descriptor)) as accepted:
                if is_accepted_on(accepted, address):
                    accepted.shutdown(socket.SHUT_RDWR)
        except (OSError, IndexError):
            continue  # not a socket, or closed meanwhile
