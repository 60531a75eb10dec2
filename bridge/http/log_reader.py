"""`GET /v1/logs` and `GET /v1/log`: read stored messages by offset, without a consumer group."""

import asyncio
import json
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
from bridge.wire import log_block

MESSAGES_MAX: Final = 2000
"""Messages in one reply: reading them takes about 4 ms, and so does encoding them."""


_BYTES_MAX: Final = 4 << 20
"""Bytes of bodies in one reply; a single message may be larger."""


class LogReader:
    """Lists the logs of a backend and reads them."""

    def __init__(self, engine: Engine) -> None:
        self._adapter = engine.adapter

    async def logs(self, request: Request) -> Reply:
        """List every log, with the first offset kept and the next one."""
        parse_params(request.headers.parameters, request.query, request.route)
        document = {"logs": self._replayable.logs()}
        return json_reply(200, json.dumps(document, separators=(",", ":")).encode())

    async def read(self, request: Request) -> Reply:
        """Return the messages of `x-oms-log` from `x-oms-offset` on, as one block."""
        params = parse_params(request.headers.parameters, request.query, request.route)
        log = required(params, "log", "one of those that /v1/logs lists")
        start = number(params, "offset", 0)
        limit = min(positive(params, "maxmessages", MESSAGES_MAX), MESSAGES_MAX)
        part = self._replayable.replay(log, start, limit, _BYTES_MAX)
        await asyncio.sleep(0)  # other requests run between reading and encoding
        body = log_block.encode(part.messages, part.offsets, part.next, part.dropped)
        content_type = log_block.MEDIA_TYPE.encode("ascii")
        return Reply(200, [OMS_VERSION, (b"content-type", content_type), NO_STORE], body)

    @property
    def _replayable(self) -> Replayable:
        if not isinstance(self._adapter, Replayable):
            raise NotFound("The bridge cannot read the logs of this backend: read them with the broker's own client.")
        return self._adapter
