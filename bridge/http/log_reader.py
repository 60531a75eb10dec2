"""`GET /v1/logs` and `GET /v1/log`: read stored messages by offset, without a consumer group."""

import json
from collections.abc import Iterable
from typing import Final

from adapters.base import Replayable
from bridge.errors import BridgeError, NotFound
from bridge.http.params import (
    number,
    parse_params,
    positive,
    required,
)
from bridge.http.request_and_reply import (
    NO_STORE,
    OMS_VERSION,
    BodyStream,
    Reply,
    Request,
    json_reply,
)
from bridge.identity.caller import Caller
from bridge.identity.rules import Operation, Resource
from bridge.long_work import Slicer, Steps
from bridge.wire import log_block
from bridge.wire.log_block import BlockWriter

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

    def __init__(self, logs: Replayable | None, slicer: Slicer) -> None:
        """`logs`: None: this bridge cannot read those of its backend."""
        self._logs = logs
        self._slicer = slicer

    async def logs(self, request: Request) -> Reply:
        """List every log, with the first offset kept and the next one."""
        parse_params(request.headers.parameters, request.query, request.route)
        return json_reply(200, await self._slicer.run(_list(self._replayable, request.body_stream, request.caller)))

    async def read(self, request: Request) -> Reply:
        """Return the messages of `x-oms-log` from `x-oms-offset` on, as one block."""
        params = parse_params(request.headers.parameters, request.query, request.route)
        log = required(params, "log", "one of those that /v1/logs lists")
        if request.caller is not None:
            request.caller.check(Operation.INSPECT, destination_of(log))
        start = number(params, "offset", 0)
        limit = min(positive(params, "maxmessages", MESSAGES_MAX), MESSAGES_MAX)
        body = await self._slicer.run(_build(self._replayable, log, start, limit, request.body_stream))
        content_type = log_block.MEDIA_TYPE.encode("ascii")
        return Reply(200, [OMS_VERSION, (b"content-type", content_type), NO_STORE], body)

    @property
    def _replayable(self) -> Replayable:
        if self._logs is None:
            raise NotFound("The bridge cannot read the logs of this backend: read them with the broker's own client.")
        return self._logs


def destination_of(log: str) -> str:
    """Return the destination of a log; empty if it is no name of a log."""
    _, _, rest = log.partition("/")
    return rest.rpartition("/")[0]


def _list(adapter: Replayable, held: BodyStream, caller: Caller | None) -> Steps[bytes]:
    """Return the list of all logs that the caller may inspect; its bytes count as held for the client.

    Raises `LimitReached`, `TooManyInFlight`.
    """
    parts: list[bytes] = []
    for found in adapter.logs():
        logs = found
        if caller is not None:
            logs = {
                log: offsets
                for log, offsets in found.items()
                if caller.may(Operation.INSPECT, Resource(destination_of(log)))
            }
        if logs:
            parts.append(json.dumps(logs, separators=(",", ":")).encode()[1:-1])
            held.hold(len(parts[-1]))
        yield
    return b'{"logs":{' + b",".join(parts) + b"}}"


def _build(adapter: Replayable, log: str, start: int, limit: int, held: BodyStream) -> Steps[bytes]:
    """Return a block of the messages from `start` on, at most `limit`; its bytes count as held for the client.

    It ends earlier if no more may be held. Raises `DestinationUnknown`; `LimitReached` or `TooManyInFlight` if not even
    its first messages may.
    """
    block = BlockWriter()
    held.hold(block.size)
    dropped: list[tuple[int, int]] = []
    while len(block) < limit:
        found = adapter.replay(log, start, min(limit - len(block), _MESSAGES_OF_STEP), _BYTES_OF_STEP)
        if found.offsets:
            part = log_block.encode_part(found.messages, found.offsets)
            if len(block) and block.size + part.size > _BYTES_MAX:
                break
            try:
                held.hold(part.size)
            except BridgeError:
                if not len(block):
                    raise
                break
            block.add(part)
        _append(dropped, found.dropped)
        start = found.next
        if not found.offsets:
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
