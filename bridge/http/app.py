"""The data port's application: one table of routes.

What comes with every message goes straight from a dict to its door; Starlette's routing serves the rest and says
404 and 405. (With its routing on the hot path Granian answers half as many requests a second.)
"""

from collections.abc import Awaitable, Mapping
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.callbacks.registry import Callbacks
from bridge.engine.engine import Engine
from bridge.errors import BridgeError, MethodNotAllowed, NotFound
from bridge.http.callbacks import CallbackPush
from bridge.http.describe import Describe
from bridge.http.door import Door
from bridge.http.exchange import Endpoint, Reply, refuse
from bridge.http.guard import Guard
from bridge.http.limits import Limits
from bridge.http.messages import Messages
from bridge.http.push import Push
from bridge.http.replay import Replay
from bridge.http.settle import Settle
from bridge.telemetry import Telemetry
from bridge.wire.text import printable

Routes = Mapping[str, Mapping[str, Endpoint]]

_NO_SUCH_METHOD: Final = 405


def routes(engine: Engine, callbacks: Callbacks, limits: Limits, max_deliveries: int) -> Routes:
    """Return every path of the data port with its methods."""
    messages, settle = Messages(engine, limits), Settle(engine, limits)
    describe = Describe(engine, limits, max_deliveries)
    callback_push, replay = CallbackPush(engine, callbacks), Replay(engine)
    return {
        "/v1/messages": {"POST": messages.produce, "GET": messages.pull},
        "/v1/push": {"GET": Push(engine, limits).stream, "POST": callback_push.register},
        "/v1/callbacks": {"GET": callback_push.listing},
        "/v1/ack": {"POST": settle.ack},
        "/v1/nack": {"POST": settle.nack},
        "/v1/extend": {"POST": settle.extend},
        "/v1/logs": {"GET": replay.logs},
        "/v1/log": {"GET": replay.read},
        "/v1/capabilities": {"GET": describe.capabilities},
        "/openapi.json": {"GET": describe.openapi},
        "/docs": {"GET": describe.page},
    }


class DataApp:
    """The ASGI application of the data port."""

    def __init__(self, table: Routes, guard: Guard, limits: Limits, telemetry: Telemetry) -> None:
        self._doors: dict[tuple[str, str], ASGIApp] = {
            (method, path): Door(f"{method} {path}", endpoint, guard, limits, telemetry)
            for path, methods in table.items()
            for method, endpoint in methods.items()
        }
        self._rest = _rest(table, guard, telemetry)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request."""
        return self._doors.get((scope["method"], scope["path"]), self._rest)(scope, receive, send)


def _rest(table: Routes, guard: Guard, telemetry: Telemetry) -> ASGIApp:
    """Everything that is not hot: preflights, wrong methods, wrong paths."""
    observer = telemetry.observer("other")

    def answer(reply: Reply) -> Response:
        observer.end(observer.begin(), reply.status)
        return _response(reply)

    def refusal(request: Request, error: Exception) -> Response:
        path: str = request.scope["path"]  # request.url is built from the Host header, which is the client's to forge
        shown = printable(path.encode("utf-8", "backslashreplace"))
        asked = dict(request.headers.raw)
        try:
            guard.check(asked.get(b"host"), asked.get(b"origin"))
            if isinstance(error, BridgeError):
                raise error
            if isinstance(error, HTTPException) and error.status_code == _NO_SUCH_METHOD:
                methods = ", ".join(table[path])
                refused = refuse(
                    MethodNotAllowed(f"{shown} takes {methods}, not {printable(request.method.encode())}.")
                )
                return answer(refused._replace(headers=[*refused.headers, (b"allow", methods.encode("ascii"))]))
            raise NotFound(f"{shown} does not exist; {', '.join(table)} do.")
        except BridgeError as refusing:
            return answer(refuse(refusing))

    async def preflight(request: Request) -> Response:
        asked = dict(request.headers.raw)
        return answer(Reply(204, guard.preflight(asked.get(b"host"), asked.get(b"origin"))))

    app = Starlette(
        routes=[Route(path, preflight, methods=["OPTIONS"]) for path in table],
        exception_handlers={HTTPException: refusal, BridgeError: refusal},
    )
    app.router.redirect_slashes = False  # a 307 to the client's own Host is no answer
    return app


def _response(reply: Reply) -> Response:
    response = Response(reply.body, reply.status)
    kept = [pair for pair in response.raw_headers if pair[0] == b"content-length"]
    response.raw_headers = [*reply.headers, *kept]
    return response
