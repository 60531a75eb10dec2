"""`POST /v1/push` and `GET /v1/callbacks`: register, stop and list callbacks."""

import json

from bridge.callbacks.listing import describe
from bridge.callbacks.registry import Callbacks
from bridge.engine.consumer import CREDIT
from bridge.engine.engine import Engine
from bridge.errors import BodyInvalid, HeaderInvalid
from bridge.http.asked import read_asked, read_group
from bridge.http.exchange import NO_STORE, Reply, Request
from bridge.http.push import CREDIT_MAX
from bridge.wire import parameters
from bridge.wire.headers import VERSION


class CallbackPush:
    """The endpoints of both paths."""

    def __init__(self, engine: Engine, callbacks: Callbacks) -> None:
        self._engine = engine
        self._callbacks = callbacks

    async def register(self, request: Request) -> Reply:
        """Deliver a group to `x-oms-callbackurl` from now on; an empty value stops it."""
        asked = read_asked(request)
        name = read_group(asked)
        url = parameters.text(asked, "callbackurl", "where messages shall be posted; an empty value stops it")
        if "ack" in asked and not parameters.flag(asked, "ack"):
            raise HeaderInvalid("x-oms-ack: a callback is always acknowledged, by its 2xx; false is not allowed.")
        if request.body:
            raise BodyInvalid("A registration has no body: it is headers only.")
        if not url:
            await self._callbacks.stop(name)
            return Reply(204, [(b"x-oms-version", VERSION)])
        credit = parameters.positive(asked, "credit", CREDIT, CREDIT_MAX)
        entry, new = await self._callbacks.register(name, url, credit)
        return self._reply(201 if new else 200, describe(entry, self._callbacks.kept_in, self._engine.clock))

    async def listing(self, request: Request) -> Reply:
        """List every registration, by name."""
        parameters.merge(request.headers.parameters, request.query)
        kept_in, clock = self._callbacks.kept_in, self._engine.clock
        return self._reply(200, [describe(entry, kept_in, clock) for entry in self._callbacks.entries])

    @staticmethod
    def _reply(status: int, document: object) -> Reply:
        headers = [(b"x-oms-version", VERSION), (b"content-type", b"application/json"), NO_STORE]
        return Reply(status, headers, json.dumps(document).encode())
