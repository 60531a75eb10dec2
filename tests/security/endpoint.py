"""Endpoints that callbacks reach, and a trap that they must not reach."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from bridge.allowed_targets import AddressPolicy, AllowedTargets
from bridge.callbacks.callback_sender import Egress
from bridge.callbacks.connection import Dialer

OK: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
LONG: Final = 10_000
"""A timeout, ms, that a passing test does not come near."""


class Received(NamedTuple):
    line: str
    headers: list[tuple[str, str]]
    body: bytes


class Connected:
    """The endpoint's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def receive(self) -> Received:
        """Read one request. Raises `IncompleteReadError` at the connection's end."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head.removesuffix("\r\n\r\n").split("\r\n")
        headers = [(name.lower(), value) for name, _, value in (field.partition(": ") for field in fields)]
        return Received(line, headers, await self.reader.readexactly(int(dict(headers)["content-length"])))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def is_left(self) -> bool:
        """Wait until the client closes; what it sends until then is dropped."""
        try:
            async with asyncio.timeout(10):
                while await self.reader.read(65536):
                    pass
        except ConnectionError:
            pass
        return True


Script = Callable[[Connected], Awaitable[object]]


async def obliging(connected: Connected) -> None:
    """Answer everything with 200."""
    while True:
        await connected.receive()
        await connected.send(OK)


class Endpoint:
    """A server that runs the script on each connection, and closes it when the script ends."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.port = 0
        self.connections = 0
        self.began: asyncio.Queue[None] = asyncio.Queue()
        """One item for each connection."""
        self.ended: asyncio.Queue[object] = asyncio.Queue()
        """What the scripts returned, in order; None where the client had left."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.began.put_nowait(None)
        result: object = None
        try:
            result = await self._script(Connected(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self.ended.put_nowait(result)


async def several(events: "asyncio.Queue[object] | asyncio.Queue[None]", count: int) -> None:
    """Wait until as many have come."""
    for _ in range(count):
        await asyncio.wait_for(events.get(), 10)


@asynccontextmanager
async def listening(script: Script = obliging, host: str = "127.0.0.1") -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(script)
    server = await asyncio.start_server(endpoint, host, 0)
    endpoint.port = server.sockets[0].getsockname()[1]
    try:
        yield endpoint
    finally:
        server.close()


@asynccontextmanager
async def outlet(
    *targets: str, networks: tuple[str, ...] = ("127.0.0.1",), milliseconds: int = LONG, ca: Path | None = None
) -> AsyncIterator[Egress]:
    """An egress that may reach the targets; 127.0.0.1 is open unless other networks are named."""
    egress = Egress(AllowedTargets.parse(targets), Dialer(AddressPolicy.parse(networks), ca), milliseconds)
    try:
        yield egress
    finally:
        await egress.close()


class Trap:
    """Accepts on every address of this machine, IPv4 and IPv6, at one port; counts connections."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()

    def sprung(self) -> int:
        """How many have connected since the last call: a completed handshake waits here until it is accepted."""
        count = 0
        while True:
            try:
                self._socket.accept()[0].close()
            except BlockingIOError:
                return count
            count += 1


Found = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]
"""One row of what getaddrinfo returns."""


class Names:
    """Stands in for the resolver; remembers who asked for what. Addresses need no resolver."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: list[list[str]]) -> None:
        """`answers`: of each name (its dots as `_`), what it resolves to at the first call, the second, …"""
        self.asked: list[str] = []
        self._answers = {name.replace("_", "."): list(lists) for name, lists in answers.items()}
        monkeypatch.setattr(socket, "getaddrinfo", self._getaddrinfo)

    def _getaddrinfo(self, host: str, port: int, family: int, kind: int, proto: int, flags: int) -> list[Found]:  # noqa: PLR0913, PLR0917 - the signature of socket.getaddrinfo
        assert (family, kind, proto, flags) == (0, socket.SOCK_STREAM, 0, 0)
        self.asked.append(host)
        if host not in self._answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        lists = self._answers[host]
        return [_found(address, port) for address in (lists.pop(0) if len(lists) > 1 else lists[0])]


def _found(address: str, port: int) -> Found:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)
