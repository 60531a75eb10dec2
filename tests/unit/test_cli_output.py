"""How `pull` and `push` write: to files, pipes and terminals that do not read."""

import asyncio
import os
import pty
import socket
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from bridge.cli.command import Output


class Pipe:
    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        self.stream = os.fdopen(writer, "wb")

    def fill(self) -> int:
        """Write until it takes no more; return the number of bytes."""
        os.set_blocking(self.stream.fileno(), False)
        filled = 0
        try:
            while True:
                filled += os.write(self.stream.fileno(), bytes(4096))
        except BlockingIOError:
            os.set_blocking(self.stream.fileno(), True)
            return filled


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.close(pipe.reader)
    pipe.stream.close()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is written in a thread."""
    sizes: list[int] = []
    to_thread = asyncio.to_thread

    async def counted(write: object, data: memoryview) -> None:
        sizes.append(len(data))
        await to_thread(write, data)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncio, "to_thread", counted)
    return sizes


async def test_a_pipe_that_is_ready_needs_no_thread(pipe: Pipe, threads: list[int]) -> None:
    await Output(pipe.stream).write_soon(b"one")
    assert (os.read(pipe.reader, 100), threads) == (b"one", [])


async def test_a_pipe_that_nobody_reads_does_not_block_the_loop(pipe: Pipe, threads: list[int]) -> None:
    filled = pipe.fill()
    writing = asyncio.create_task(Output(pipe.stream).write_soon(b"late"))
    await asyncio.sleep(0.01)
    assert (writing.done(), threads) == (False, [4])
    received = 0
    while received < filled:
        received += len(os.read(pipe.reader, filled - received))
    await writing
    assert os.read(pipe.reader, 100) == b"late"


async def test_what_a_pipe_does_not_take_at_once_is_written_in_a_thread(pipe: Pipe, threads: list[int]) -> None:
    data = bytes(range(256)) * 4096
    writing = asyncio.create_task(Output(pipe.stream).write_soon(data))
    received = b""
    while len(received) < len(data):
        await asyncio.sleep(0)
        received += os.read(pipe.reader, len(data))
    await writing
    assert received == data
    assert [0 < size < len(data) for size in threads] == [True]


async def test_a_cancelled_write_is_finished(pipe: Pipe) -> None:
    filled = pipe.fill()
    writing = asyncio.create_task(Output(pipe.stream).write_soon(b"late"))
    await asyncio.sleep(0.01)
    writing.cancel()
    await asyncio.sleep(0.01)
    assert not writing.done()
    assert len(os.read(pipe.reader, filled)) == filled
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert os.read(pipe.reader, 100) == b"late"


async def test_files_and_the_null_device_need_no_thread(tmp_path: Path, threads: list[int]) -> None:
    for path in (tmp_path / "out", Path(os.devnull)):
        with path.open("wb") as stream:
            await Output(stream).write_soon(b"one")
    assert ((tmp_path / "out").read_bytes(), threads) == (b"one", [])


async def test_a_terminal_a_socket_and_a_replaced_stream_are_written_in_a_thread(threads: list[int]) -> None:
    near, far = socket.socketpair()
    main, terminal = pty.openpty()
    with near, far, os.fdopen(terminal, "wb") as tty, near.makefile("wb") as sent:
        for stream in (tty, sent, BytesIO()):
            await Output(stream).write_soon(b"one")
        assert (os.read(main, 100), far.recv(100), threads) == (b"one", b"one", [3, 3, 3])
    os.close(main)
