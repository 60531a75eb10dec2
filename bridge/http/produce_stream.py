"""`POST /v1/stream`: messages as lines of a body without end, and a line of the response for each of them."""

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from bridge.engine.batch import Produced
from bridge.engine.dedup import named
from bridge.engine.engine import Engine
from bridge.engine.quota import client_of
from bridge.errors import BodyTooLarge, BridgeError, ContentTypeUnsupported, HeaderInvalid
from bridge.http.params import parse_require
from bridge.http.produce import PROPERTY, ProduceEndpoint, Rules, idempotency_key, write_result
from bridge.http.push import CHUNK
from bridge.http.request_reply import NO_STORE, OMS_VERSION, BodyStream, Limits, Reply, Request, Write
from bridge.message import Field, Message
from bridge.slicer import Slicer
from bridge.steps import Steps
from bridge.wire import gzip_body, jsonform, problem
from bridge.wire.lines import Line, LineSplitter
from bridge.wire.push_framing import StreamEnd, encode_line

WINDOW: Final = 256 << 10
"""Bytes of lines that are read and decoded while those before them are stored."""
_PART: Final = 4096
"""Bytes that are split into lines in one step: lines of two bytes take a millisecond."""
_LINE: Final = 1024
"""Bytes that a line takes besides its text until its result is sent: measured for lines that are refused."""
_NDJSON: Final = b"application/x-ndjson"

Numbered = tuple[int, Message | BridgeError]
"""The message of a line, or its error, and the number of the line."""
Decode = Callable[[Sequence[Line]], Steps[list[Message | BridgeError]]]


class ProduceStreamEndpoint:
    """Opens produce streams."""

    def __init__(self, engine: Engine, limits: Limits, slicer: Slicer, produce: ProduceEndpoint, rules: Rules) -> None:
        self._engine = engine
        self._limits = limits
        self._slicer = slicer
        self._produce = produce
        self._rules = rules

    def stream(self, request: Request) -> Reply:
        """Return the results of the messages, in their order, while the body still arrives."""
        headers = request.headers
        headers.require_version()
        if request.query:
            raise HeaderInvalid("A produce stream takes no query parameters: send headers.")
        if "transaction" in headers.parameters:
            raise HeaderInvalid("A produce stream has no transactions: prepare messages by requests that end.")
        media_type = headers.plain.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if media_type != _NDJSON or gzip_body.is_gzip(headers.plain.get(b"content-encoding")):
            raise ContentTypeUnsupported("A produce stream is application/x-ndjson and not compressed.")
        require = parse_require(headers.parameters)
        decode = partial(self._decode, key=idempotency_key(headers))
        reader = _LineReader(request.body_stream, self._limits, self._slicer, decode)
        try:
            close = self._engine.open_stream(client_of(request.peer), reader.stop)
        except BridgeError:
            reader.stop()
            raise

        def cleanup() -> None:
            reader.stop()
            close()

        run = partial(self._run, reader, require, request.peer)
        return Reply(200, [OMS_VERSION, (b"content-type", _NDJSON), NO_STORE], stream=run, cleanup=cleanup)

    def _decode(self, lines: Sequence[Line], key: str | None) -> Steps[list[Message | BridgeError]]:
        return self._produce.validate_all(_messages(lines, key, self._limits.body), self._rules)

    async def _run(self, reader: "_LineReader", require: Sequence[Field], peer: str, write: Write) -> None:
        """See `Reply.stream`."""
        await write(b"")  # the client gets the headers of the response before it sends a line
        try:
            while lines := await reader.take():
                results = await self._engine.produce_all([each for _, each in lines], require, peer)
                numbers = [number for number, _ in lines]
                del lines  # nothing here holds the bodies while the client reads
                await _write_results(numbers, results, write)
                reader.release()
            end = reader.end()
        except BridgeError as error:
            end = StreamEnd(error.code, error.detail)
        await write(encode_line(end) + b"\n")


class _LineReader:
    """A task that reads and decodes lines. It pauses while so many wait to be taken that they fill the window."""

    def __init__(self, body: BodyStream, limits: Limits, slicer: Slicer, decode: Decode) -> None:
        self._body = body
        self._limits = limits
        self._slicer = slicer
        self._decode = decode
        self._waiting: list[Numbered] = []
        self._waiting_bytes = 0
        """Bytes of their text."""
        self._waiting_held = self._taken_held = 0
        """Bytes that count as held for them."""
        self._changed = asyncio.Event()
        self._task = asyncio.ensure_future(self._read())
        self._task.add_done_callback(lambda _: self._changed.set())

    async def take(self) -> list[Numbered]:
        """Wait for lines and return them; none: the body has ended, or `stop` was called."""
        await self._until(lambda: bool(self._waiting) or self._task.done())
        taken, self._waiting = self._waiting, []
        self._taken_held, self._waiting_held = self._waiting_held, 0
        self._waiting_bytes = 0
        self._changed.set()
        return taken

    def release(self) -> None:
        """Count the lines that were taken as not held any more: their results are sent."""
        self._body.release(self._taken_held)

    def stop(self) -> None:
        """Read no more."""
        self._task.cancel()

    def end(self) -> StreamEnd:
        """Return why there are no more lines. Raises the exception of a defect."""
        return StreamEnd("draining") if self._task.cancelled() else self._task.result()

    async def _read(self) -> StreamEnd:
        splitter = LineSplitter(self._limits.body)
        try:
            while piece := await self._body.read():
                self._body.hold(len(piece))
                for at in range(0, len(piece), _PART):
                    await self._split(splitter, piece[at : at + _PART])
                    await asyncio.sleep(0)
            await self._add(splitter.end())
        except BridgeError as error:
            return StreamEnd(error.code, error.detail)
        return StreamEnd("complete")

    async def _split(self, splitter: LineSplitter, part: bytes) -> None:
        """Add the lines of a part that counts as held."""
        unfinished = splitter.size
        lines = splitter.feed(part)
        self._body.release(unfinished + len(part) - splitter.size - _size(lines))
        for at in range(0, len(lines), self._limits.batch):
            await self._add(lines[at : at + self._limits.batch])

    async def _add(self, lines: Sequence[Line]) -> None:
        """Decode lines whose text counts as held."""
        size, more = _size(lines), _LINE * len(lines)
        self._body.hold(more)
        decoded = await self._slicer.run(self._decode(lines))
        properties = PROPERTY * sum(len(each.properties) for each in decoded if isinstance(each, Message))
        self._body.hold(properties)
        await self._until(
            lambda: (
                not self._waiting
                or (self._waiting_bytes + size <= WINDOW and len(self._waiting) + len(decoded) <= self._limits.batch)
            )
        )
        self._waiting += zip((line.number for line in lines), decoded, strict=True)
        self._waiting_bytes += size
        self._waiting_held += size + more + properties
        self._changed.set()

    async def _until(self, done: Callable[[], bool]) -> None:
        while not done():
            self._changed.clear()
            await self._changed.wait()


def _messages(lines: Sequence[Line], key: str | None, limit: int) -> Steps[list[Message | BridgeError]]:
    messages: list[Message | BridgeError] = []
    for number, text in lines:
        try:
            if text is None:
                raise BodyTooLarge(f"The line has more than {limit} bytes.")
            message = yield from jsonform.decode_line(text)
            messages.append(message if key is None else named(message, f"{key}/{number}"))
        except BridgeError as error:
            messages.append(error)
        yield
    return messages


def _size(lines: Sequence[Line]) -> int:
    return sum(len(line.text) for line in lines if line.text is not None)


async def _write_results(numbers: Sequence[int], results: Sequence[Produced | BridgeError], write: Write) -> None:
    lines: list[str] = []
    size = 0
    for number, result in zip(numbers, results, strict=True):
        if isinstance(result, BridgeError):
            lines.append(json.dumps({"line": number, **problem.members(result)}))
        else:
            lines.append(write_result(result))
        size += len(lines[-1])
        if size >= CHUNK:
            await write("\n".join((*lines, "")).encode("ascii"))
            lines, size = [], 0
    if lines:
        await write("\n".join((*lines, "")).encode("ascii"))
