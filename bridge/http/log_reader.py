"""`GET /v1/logs` and `GET /v1/log`: read stored messages by offset, without a consumer group."""

import asyncio
import json
from collections.abc import Iterable
from typing import Final

from adapters.base import Replayable
from bridge.engine.engine import Engine
from bridge.errors import NotFound
from bridge.http.params import (
    number,
    parse_params,
    positive,
    required,
)
from bridge.http.request_and_reply import (
    NO_STORE,
    OMS_VERSION,
    Reply,
    Request,
    json_reply,
)
from bridge.long_work import Slicer, Steps
from bridge.wire import log_block

MESSAGES_MAX: Final = 2000
"""Messages in one reply."""
_BYTES_MAX: Final = 4 << 20
"""Bytes of one reply; a single message may be larger."""
_MESSAGES_OF_STEP: Final = 200
_BYTES_OF_STEP: Final = 64 << 10
"""What is read and encoded in one step, in about a millisecond: bytes of bodies and characters of headers, which the
block escapes. A single message may be larger."""


class LogReader:
    """Lists the logs of a backend and reads them."""

    def __init__(self, engine: Engine, slicer: Slicer) -> None:
        self._adapter = engine.adapter
        self._slicer = slicer
        self._building = asyncio.Lock()

    async def logs(self, request: Request) -> Reply:
        """List every log, with the first offset kept and the next one."""
        parse_params(request.headers.parameters, request.query)
        document = {"logs": self._replayable.logs()}
        return json_reply(200, json.dumps(document, separators=(",", ":")).encode())

    async def read(self, request: Request) -> Reply:
        """Return the messages of `x-oms-log` from `x-oms-offset` on, as one block."""
        params = parse_params(request.headers.parameters, request.query)
        log = required(params, "log", "one of those that /v1/logs lists")
        start = number(params, "offset", 0)
        limit = min(positive(params, "maxmessages", MESSAGES_MAX), MESSAGES_MAX)
        steps = _build(self._replayable, log, start, limit)
        async with self._building:  # one block at a time; when it is complete it counts as held for its client
            body = await self._slicer.run(steps)
        content_type = log_block.MEDIA_TYPE.encode("ascii")
        return Reply(200, [OMS_VERSION, (b"content-type", content_type), NO_STORE], body)

    @property
    def _replayable(self) -> Replayable:
        if not isinstance(self._adapter, Replayable):
            raise NotFound("The bridge cannot read the logs of this backend: read them with the broker's own client.")
        return self._adapter


def _build(adapter: Replayable, log: str, start: int, limit: int) -> Steps[bytes]:
    """Return a block of the messages from `start` on, at most `limit`. Raises `DestinationUnknown`."""
    block = log_block.BlockWriter(_BYTES_MAX)
    dropped: list[tuple[int, int]] = []
    while len(block) < limit:
        part = adapter.replay(log, start, min(limit - len(block), _MESSAGES_OF_STEP), _BYTES_OF_STEP)
        if part.offsets and not block.add(part.messages, part.offsets):
            break
        _append(dropped, part.dropped)
        start = part.next
        if not part.offsets:
            break
        yield
    return block.finish(start, dropped)


def _append(ranges: list[tuple[int, int]], more: Iterable[tuple[int, int]]) -> None:
    """Append ranges of offsets; one that begins where the last one ends continues it."""
    for begin, end in more:
        if ranges and ranges[-1][1] == begin:
            ranges[-1] = ranges[-1][0], end
        else:
            ranges.append((begin, end))
