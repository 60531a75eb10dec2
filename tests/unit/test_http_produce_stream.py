"""How a produce stream reads its lines, and how the messages of a batch are checked in steps."""

import asyncio
from itertools import count

from adapters.memory import connect
from bridge.engine.clock import SystemClock
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.errors import BodyInvalid, BridgeError
from bridge.http.produce import ProduceEndpoint
from bridge.http.produce_stream import Numbered, _LineReader
from bridge.http.request_and_reply import Limits
from bridge.long_work import Slicer, Steps
from bridge.message import Message
from bridge.wire.stream_framings import Run, StreamEnd

SIZE = 1 << 20


class Body:
    """One piece, and what is held of it."""

    def __init__(self, piece: bytes) -> None:
        self._pieces = [b"", piece]
        self.held = 0

    async def read(self) -> bytes:
        return self._pieces.pop()

    def hold(self, size: int) -> None:
        self.held += size

    def release(self, size: int) -> None:
        self.held -= size


def decode(run: Run) -> Steps[list[Numbered]]:
    yield
    with_properties = Message("orders", b"", properties={"a": "", "b": ""})
    return [(line.number, with_properties if line.text == b"{}" else BridgeError("")) for line in run.lines()]


async def test_a_large_piece_of_short_lines_is_split_in_slices() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    body = Body(b"\n" * SIZE)
    seconds = count()
    reader = _LineReader(body, Limits(), Slicer(lambda: next(seconds)), decode)
    ticking = asyncio.create_task(tick())
    assert await reader.take() == []
    ticking.cancel()
    assert (reader.end(), body.held) == (StreamEnd("complete"), 0)
    assert ticks > SIZE // 8192, "the event loop has served others meanwhile"


async def test_lines_count_with_the_objects_that_they_become() -> None:
    """Two bytes that are refused become an error of a kilobyte: 400 streams of them took 612 MiB."""
    body = Body(b"{}\n1\n")
    reader = _LineReader(body, Limits(), Slicer(), decode)
    assert len(await reader.take()) == 2
    assert body.held > 2 * 1024 + 2 * 200
    reader.release()
    assert await reader.take() == []
    assert body.held == 0


def test_refused_messages_do_not_lengthen_a_step() -> None:
    """A step of messages with as many headers as are allowed took 143 ms when each eighth one was refused."""

    def decoding() -> Steps[list[Message | BridgeError]]:
        yield
        return [BodyInvalid("") if index % 8 == 0 else Message("orders", b"") for index in range(80)]

    engine = Engine(connect("memory://"), SystemClock(), EngineOptions("host"))
    endpoint = ProduceEndpoint(engine, Limits(), Slicer(), {})
    assert sum(1 for _ in endpoint.validate_all(decoding(), {})) > 80 // 8
