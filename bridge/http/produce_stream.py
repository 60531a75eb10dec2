"""`POST /v1/stream`: messages as lines of a body without end, and a line of the response for each of them."""

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from bridge.engine.client_limits import client_of
from bridge.engine.engine import Engine
from bridge.engine.message_names import named
from bridge.engine.produced import Produced
from bridge.errors import BodyTooLarge, BridgeError, ContentTypeUnsupported, HeaderInvalid, problem_members
from bridge.http.heartbeat import UNBUFFERED, Heartbeat
from bridge.http.incoming_webhook_rules import Rules
from bridge.http.params import parse_require
from bridge.http.permitted_publisher import Publisher, permitted
from bridge.http.produce import ProduceEndpoint, idempotency_key, size_of_properties, write_result
from bridge.http.push import CHUNK
from bridge.http.request_and_reply import NO_STORE, OMS_VERSION, BodyStream, Limits, Reply, Request, Write
from bridge.http.until_lost import UntilLost
from bridge.identity.caller import Caller
from bridge.long_work import Slicer, Steps
from bridge.message import Field, Message
from bridge.wire import gzip_body, jsonform
from bridge.wire.stream_framings import Line, LineSplitter, Run, StreamEnd, encode_line

WINDOW: Final = 256 << 10
"""Bytes of lines that are read and decoded while those before them are stored."""

_ENOUGH: Final = 64 << 10
"""Bytes of lines that are published together if the client sends without waiting for results."""
_LINGER: Final = 0.001
"""Seconds that these are waited for."""
_LINE: Final = 1024
"""Bytes that a line takes besides its text until its result is sent: measured for lines that are refused."""
_NDJSON: Final = b"application/x-ndjson"

Numbered = tuple[int, Message | BridgeError]
"""The message of a line, or its error, and the number of the line."""
Decode = Callable[[Run], Steps[list[Numbered]]]


class ProduceStreamEndpoint:
    """Opens produce streams."""

    def __init__(self, engine: Engine, limits: Limits, slicer: Slicer, produce: ProduceEndpoint, rules: Rules) -> None:
        self._engine = engine
        self._limits = limits
        self._slicer = slicer
        self._produce = produce
        self._rules = rules

    async def stream(self, request: Request) -> Reply:
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
        key = idempotency_key(headers)
        decode = partial(self._decode, key=key, in_headers=require.headers, caller=request.caller)
        reader = _LineReader(request.body_stream, self._limits, self._slicer, decode)
        try:
            close = self._engine.open_stream(client_of(request.peer), reader.stop)
        except BridgeError:
            reader.stop()
            raise

        def cleanup() -> None:
            reader.stop()
            close()

        run = partial(self._run, reader, require.fields, request.peer, request.caller)
        reply_headers = [OMS_VERSION, (b"content-type", _NDJSON), NO_STORE, UNBUFFERED]
        return Reply(200, reply_headers, stream=run, cleanup=cleanup)

    def _decode(self, run: Run, key: str | None, *, in_headers: bool, caller: Caller | None) -> Steps[list[Numbered]]:
        numbers, reading = _read(run, key, self._limits.body)
        messages = yield from self._produce.validate_all(reading, self._rules, in_headers=in_headers, caller=caller)
        return list(zip(numbers, messages, strict=True))

    async def _run(
        self, reader: "_LineReader", require: Sequence[Field], peer: str, caller: Caller | None, write: Write
    ) -> None:
        """See `Reply.stream`."""
        heartbeat, until_lost = Heartbeat(write, b"\n"), UntilLost(caller)
        publisher = permitted(self._engine, caller)
        try:
            await until_lost.stream(self._write_all(reader, require, peer, publisher, until_lost, heartbeat.write))
        finally:
            heartbeat.close()

    @staticmethod
    async def _write_all(  # noqa: PLR0913, PLR0917 - what one stream consists of
        reader: "_LineReader",
        require: Sequence[Field],
        peer: str,
        publisher: Publisher,
        until_lost: UntilLost,
        write: Write,
    ) -> None:
        await write(b"")  # the client gets the headers of the response before it sends a line
        try:
            while lines := await until_lost.wait(reader.take()):
                results = await publisher.produce([each for _, each in lines], require, peer, None)
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
        self._is_ahead = False
        """Whether the client sends lines before it has the results of those before."""
        self._changed = asyncio.Event()
        self._task = asyncio.ensure_future(self._read())
        self._task.add_done_callback(lambda _: self._changed.set())

    async def take(self) -> list[Numbered]:
        """Wait for lines and return them; none: the body has ended, or `stop` was called."""
        if self._waiting:
            self._is_ahead = True
        await self._until(lambda: bool(self._waiting) or self._task.done())
        if self._is_ahead:
            await self._linger()
        taken, self._waiting = self._waiting, []
        self._taken_held, self._waiting_held = self._waiting_held, 0
        self._waiting_bytes = 0
        self._changed.set()
        return taken

    async def _linger(self) -> None:
        """Wait a moment for more lines: each publish and each write has its own cost."""
        before, lingering = self._waiting_bytes, True

        def end() -> None:
            nonlocal lingering
            lingering = False
            self._changed.set()

        timer = asyncio.get_running_loop().call_later(_LINGER, end)
        await self._until(lambda: not lingering or self._waiting_bytes >= _ENOUGH or self._task.done())
        timer.cancel()
        self._is_ahead = self._waiting_bytes > before

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
        splitter = LineSplitter(self._limits.body, self._limits.batch)
        try:
            while piece := await self._body.read():
                self._body.hold(len(piece))
                unfinished = splitter.size
                runs = splitter.feed(piece)
                self._body.release(unfinished + len(piece) - splitter.size - sum(map(_size, runs)))
                for run in runs:
                    await self._add(run)
            for run in splitter.end():
                await self._add(run)
        except BridgeError as error:
            return StreamEnd(error.code, error.detail)
        return StreamEnd("complete")

    async def _add(self, run: Run) -> None:
        """Decode lines whose text counts as held."""
        size, more = _size(run), _LINE * run.length
        self._body.hold(more)
        decoded = await self._slicer.run(self._decode(run))
        self._body.release(more - _LINE * len(decoded))  # of lines of white space
        if not decoded:
            self._body.release(size)
            return
        properties = size_of_properties(each for _, each in decoded)
        self._body.hold(properties)
        await self._until(
            lambda: (
                not self._waiting
                or (self._waiting_bytes + size <= WINDOW and len(self._waiting) + len(decoded) <= self._limits.batch)
            )
        )
        self._waiting += decoded
        self._waiting_bytes += size
        self._waiting_held += size + _LINE * len(decoded) + properties
        self._changed.set()

    async def _until(self, done: Callable[[], bool]) -> None:
        while not done():
            self._changed.clear()
            await self._changed.wait()


def _read(run: Run, key: str | None, limit: int) -> tuple[Sequence[int], Steps[list[Message | BridgeError]]]:
    """Return the numbers of the lines of a run, and what reads their messages."""
    messages = None if run.text is None else jsonform.decode_lines(run.text, run.length)
    if messages is not None:
        numbers: Sequence[int] = range(run.number, run.number + run.length)
        return numbers, _named(messages, numbers, key)
    lines = list(run.lines())
    return [line.number for line in lines], _each(lines, key, limit)


def _named(messages: list[Message], numbers: Sequence[int], key: str | None) -> Steps[list[Message | BridgeError]]:
    yield
    if key is None:
        return [*messages]
    return [named(message, key, number) for message, number in zip(messages, numbers, strict=True)]


def _each(lines: Sequence[Line], key: str | None, limit: int) -> Steps[list[Message | BridgeError]]:
    messages: list[Message | BridgeError] = []
    for number, text in lines:
        try:
            if text is None:
                raise BodyTooLarge(f"The line has more than {limit} bytes.")
            message = yield from jsonform.decode_line(text)
            messages.append(message if key is None else named(message, key, number))
        except BridgeError as error:
            messages.append(error)
        yield
    return messages


def _size(run: Run) -> int:
    return 0 if run.text is None else len(run.text)


async def _write_results(numbers: Sequence[int], results: Sequence[Produced | BridgeError], write: Write) -> None:
    lines: list[str] = []
    size = 0
    for number, result in zip(numbers, results, strict=True):
        if isinstance(result, BridgeError):
            lines.append(json.dumps({"line": number, **problem_members(result)}))
        else:
            lines.append(write_result(result))
        size += len(lines[-1])
        if size >= CHUNK:
            await write("\n".join((*lines, "")).encode("ascii"))
            lines, size = [], 0
    if lines:
        await write("\n".join((*lines, "")).encode("ascii"))
