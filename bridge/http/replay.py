"""`GET /v1/logs` and `GET /v1/log`: the messages a backend keeps, read again by their offsets, without a group."""

import asyncio
import json
from typing import Final

from adapters.base import Replayable
from bridge.engine.engine import Engine
from bridge.errors import NotFound
from bridge.http.asked import read_asked
from bridge.http.exchange import NO_STORE, Reply, Request
from bridge.wire import block, parameters
from bridge.wire.headers import VERSION

MESSAGES_MAX: Final = 2000
"""Of one answer: finding them takes about 4 ms, and so does writing them."""
_BYTES_MAX: Final = 4 << 20
"""Of the bodies of one answer; a single message may be larger."""


class Replay:
    """The endpoints of both paths."""

    def __init__(self, engine: Engine) -> None:
        self._adapter = engine.adapter

    async def logs(self, request: Request) -> Reply:
        """Name every log, with the first offset kept and the next one."""
        read_asked(request)
        document = {"logs": self._replayable.logs()}
        return self._reply(b"application/json", json.dumps(document, separators=(",", ":")).encode())

    async def read(self, request: Request) -> Reply:
        """Return the messages of `x-oms-log` from `x-oms-offset` on, as one block."""
        asked = read_asked(request)
        log = parameters.text(asked, "log", "one of those that /v1/logs names")
        start = parameters.number(asked, "offset", 0)
        limit = min(parameters.positive(asked, "maxmessages", MESSAGES_MAX), MESSAGES_MAX)
        found = self._replayable.replay(log, start, limit, _BYTES_MAX)
        await asyncio.sleep(0)  # others have their turn between the two halves of the work
        body = block.encode(found.messages, found.offsets, found.next, found.dropped)
        return self._reply(block.MEDIA_TYPE.encode("ascii"), body)

    @property
    def _replayable(self) -> Replayable:
        if not isinstance(self._adapter, Replayable):
            raise NotFound("This backend has no log to be read through the bridge; read the broker's own.")
        return self._adapter

    @staticmethod
    def _reply(content_type: bytes, body: bytes) -> Reply:
        return Reply(200, [(b"x-oms-version", VERSION), (b"content-type", content_type), NO_STORE], body)
