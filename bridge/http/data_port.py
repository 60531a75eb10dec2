"""The ASGI application of the data port: its table of routes, and the answers to unknown paths and wrong methods.

A table lookup finds the handler of a message's request; Starlette's routing serves the rest and answers 404 and 405.
(With its routing for every request, Granian answers half as many requests a second.)
"""

from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.callbacks.registry import CallbackRegistry
from bridge.engine.engine import Engine
from bridge.errors import BridgeError, MethodNotAllowed, NotFound
from bridge.http.asgi_endpoint import RequestHandler
from bridge.http.callbacks import CallbackEndpoints
from bridge.http.deadline import Deadline
from bridge.http.description import DescriptionEndpoints, console
from bridge.http.incoming_webhook_rules import Rules
from bridge.http.log_reader import LogReader
from bridge.http.origin_policy import OriginPolicy
from bridge.http.params import (
    DESTINATION_MESSAGE,
    DESTINATION_MESSAGES,
    TRANSACTION,
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
    template_of,
)
from bridge.http.produce import ProduceEndpoint
from bridge.http.produce_stream import ProduceStreamEndpoint
from bridge.http.pull import PullEndpoint, SettleEndpoints
from bridge.http.push import PushEndpoint
from bridge.http.request_and_reply import Limits, Pair, Reply, Respond, problem_reply
from bridge.http.resource_metadata import ResourceMetadata
from bridge.http.transactions import TransactionEndpoints
from bridge.http.webhook_handshake import WebhookHandshake
from bridge.identity.access import METADATA_PATH, Access
from bridge.long_work import Slicer
from bridge.metrics import BridgeMetrics
from bridge.wire.header_text import did_you_mean, printable

Routes = Mapping[str, Mapping[str, Respond]]

CONSOLE: Final = "/docs"
OPEN_DOCUMENTS: Final = (METADATA_PATH, "/openapi.json", "/asyncapi.json")
"""Paths that need no token, like those of the console: they say the same for every bridge, or how to get a token."""

MANAGEMENT_PAGES: Final = ("/livez", "/readyz", "/startedz", "/metrics", "/status")
"""Paths of the management port. On the data port, the 404 for one of them names the setting `management`."""


def routes(  # noqa: PLR0913 - the collaborators of all endpoints, built in one place (process.py)
    engine: Engine,
    callbacks: CallbackRegistry,
    limits: Limits,
    max_deliveries: int,
    rules: Rules | None = None,
    *,
    slicer: Slicer | None = None,
    access: Access | None = None,
) -> Routes:
    """Return every path of the data port with its methods. `rules`: of destinations that have settings.

    `slicer` runs long work, also that of callbacks; None: a new one.
    """
    slicer = slicer or Slicer()
    settle, log_reader = SettleEndpoints(engine, limits), LogReader(engine.logs, slicer)
    callback_endpoints = CallbackEndpoints(engine, callbacks)
    description = DescriptionEndpoints(engine, limits, max_deliveries)
    produce = ProduceEndpoint(engine, limits, slicer, rules or {})
    transactions = TransactionEndpoints(engine.transactions)
    return {
        "/v1/messages": {"POST": produce.produce, "GET": PullEndpoint(engine, limits, slicer).pull},
        DESTINATION_MESSAGES: {"POST": produce.produce_by_url},
        DESTINATION_MESSAGE: {"PUT": produce.produce_by_url},
        "/v1/stream": {"POST": ProduceStreamEndpoint(engine, limits, slicer, produce, rules or {}).stream},
        "/v1/transactions": {"GET": transactions.listing},
        TRANSACTION: {"GET": transactions.find},
        TRANSACTION_COMMIT: {"POST": transactions.commit},
        TRANSACTION_ROLLBACK: {"POST": transactions.rollback},
        "/v1/push": {"GET": PushEndpoint(engine, limits, slicer).stream, "POST": callback_endpoints.register},
        "/v1/callbacks": {"GET": callback_endpoints.listing},
        "/v1/ack": {"POST": settle.ack},
        "/v1/nack": {"POST": settle.nack},
        "/v1/extend": {"POST": settle.extend},
        "/v1/logs": {"GET": log_reader.logs},
        "/v1/log": {"GET": log_reader.read},
        "/v1/capabilities": {"GET": description.capabilities},
        METADATA_PATH: {"GET": ResourceMetadata(access).document},
        "/openapi.json": {"GET": description.openapi},
        "/asyncapi.json": {"GET": description.asyncapi},
        **{path: {"GET": respond} for path, respond in console().items()},
    }


class DataApp:
    """The ASGI application of the data port. `handshake`: None answers none."""

    def __init__(  # noqa: PLR0913, PLR0917 - what all endpoints share
        self,
        table: Routes,
        origins: OriginPolicy,
        limits: Limits,
        metrics: BridgeMetrics,
        handshake: WebhookHandshake | None = None,
        access: Access | None = None,
    ) -> None:
        self._handlers: dict[tuple[str, str], RequestHandler] = {
            (method, path): RequestHandler(
                f"{method} {path}", endpoint, origins, limits, metrics, None if _is_open(path) else access
            )
            for path, methods in table.items()
            for method, endpoint in methods.items()
        }
        self._fallback = _fallback_app(table, origins, metrics, handshake)
        self._stall = Deadline(limits.stall / 1000)
        self._origins = origins
        self._refusals = metrics.refusals

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request."""
        handler = self._handlers.get((scope["method"], scope["path"])) or self._handler_of_template(scope)
        return (handler or self._answer_other)(scope, receive, send)

    def refused(self, error: BridgeError, headers: Iterable[Pair]) -> list[Pair]:
        """Count a request that the server refuses itself; see `NotesRefusals`."""
        self._refusals[error.code] += 1
        with suppress(BridgeError):
            return self._origins.check(dict(headers))
        return []

    def _handler_of_template(self, scope: Scope) -> RequestHandler | None:
        return self._handlers.get((scope["method"], template_of(scope["path"])))

    async def _answer_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that no handler is for. The response ends as it is if its client stops reading."""
        with suppress(TimeoutError), self._stall.start():
            await self._fallback(scope, receive, send)


def _is_open(path: str) -> bool:
    """Return whether a path needs no token."""
    return path in OPEN_DOCUMENTS or path == CONSOLE or path.startswith(f"{CONSOLE}/")


def _fallback_app(
    table: Routes, origins: OriginPolicy, metrics: BridgeMetrics, handshake: WebhookHandshake | None
) -> ASGIApp:
    """Build the application for preflights, handshakes, unknown paths and wrong methods."""
    observer = metrics.observer("other")

    def observed(reply: Reply) -> Response:
        observer.end(observer.begin(), reply.status)
        return to_response(reply)

    def problem(request: Request, error: Exception) -> Response:
        path: str = request.scope["path"]  # not request.url: it contains the Host header, which a client can forge
        shown = printable(path.encode("utf-8", "backslashreplace"))
        headers = dict(request.headers.raw)
        more: list[Pair] = []
        try:
            more = origins.check(headers)
            if isinstance(error, BridgeError):
                raise error
            if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
                methods = ", ".join(table[template_of(path)])
                more = [*more, (b"allow", methods.encode("ascii"))]
                raise MethodNotAllowed(f"{shown} allows {methods}, not {printable(request.method.encode())}.")
            if path in MANAGEMENT_PAGES:
                raise NotFound(f"`{path}` is a path of the management port, whose address is the setting `management`.")
            hint = did_you_mean(path, {known: known for known in table}) or "."
            raise NotFound(f"unknown path `{shown}`{hint} The paths are {', '.join(table)}.")
        except BridgeError as refused_error:
            metrics.refusals[refused_error.code] += 1
            refused = problem_reply(refused_error)
            return observed(refused._replace(headers=[*refused.headers, *more]))

    async def options(request: Request) -> Response:
        headers = dict(request.headers.raw)
        preflight = origins.preflight(headers)
        allowed = None if handshake is None else handshake.answer(request.scope["path"], headers)
        return observed(Reply(204, preflight) if allowed is None else Reply(200, [*preflight, *allowed]))

    app = Starlette(
        routes=[Route(path, options, methods=["OPTIONS"]) for path in table],
        exception_handlers={HTTPException: problem, BridgeError: problem},
    )
    app.router.redirect_slashes = False  # a 307 would point to the Host that the client has sent
    return app


def to_response(reply: Reply) -> Response:
    """Return a reply as a response of Starlette."""
    response = Response(reply.body, reply.status)
    content_length = [pair for pair in response.raw_headers if pair[0] == b"content-length"]
    response.raw_headers = [*reply.headers, *content_length]
    return response
