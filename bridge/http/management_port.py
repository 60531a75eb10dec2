"""The management port: probes, metrics, status, and purging and deleting of destinations and groups."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge import __version__
from bridge.engine.client_limits import peer_of
from bridge.engine.destination_names import check_name
from bridge.engine.destination_registry import Administration
from bridge.engine.engine import Engine
from bridge.errors import BridgeError, Forbidden
from bridge.http.data_port import MANAGEMENT_PAGES, to_response
from bridge.http.origin_policy import OriginPolicy
from bridge.http.request_and_reply import problem_reply
from bridge.http.transactions import describe_all
from bridge.identity.access import Access
from bridge.identity.caller import Caller
from bridge.identity.rules import Operation, Resource
from bridge.metrics import BridgeMetrics

_DESTINATION = "/v1/destinations/{destination}"
_GROUP = "/v1/destinations/{destination}/groups/{group}"

_SECONDS: Final = re.compile("[0-9]{1,9}")

Page = Callable[[Request], Awaitable[Response]]
Change = Callable[[str, str | None], Awaitable[None]]


def management_app(
    engine: Engine,
    metrics: BridgeMetrics,
    facts: Mapping[str, str],
    origins: OriginPolicy,
    access: Access | None = None,
) -> Starlette:
    """Build the application of the management port: probes, metrics, status, and what an operator may change.

    `access` None: everyone may do all of it. `facts`: what `/status` says that never changes, such as the backend's
    URL without secrets. `origins` refuses web pages: a page that rebinds its name could read and change.
    """

    async def exposition(_: Request) -> Response:
        await metrics.count_unsettled()
        return Response(metrics.exposition(), media_type="text/plain; version=1.0.0; charset=utf-8")

    async def status(_: Request) -> Response:
        groups = [
            {
                "source": name.source,
                "consumerId": name.group,
                "prefetched": group.prefetched.messages,
                "ready": group.prefetched.ready,
                "leases": group.prefetched.leases,
                "notReadyReason": group.not_ready_reason,
            }
            for name, group in engine.groups
        ]
        return JSONResponse(
            {
                "version": __version__,
                **facts,
                "ready": engine.not_ready_reason is None and not engine.draining,
                "notReadyReason": engine.not_ready_reason,
                "draining": engine.draining,
                "counts": metrics.totals(),
                "groups": groups,
            }
        )

    async def transactions(_: Request) -> Response:
        return Response(describe_all(engine.transactions.all_open()), media_type="application/json")

    inspected = (_inspected(page, access) for page in (exposition, status))
    pages = dict(zip(MANAGEMENT_PAGES, (*_probes(engine, access), *inspected), strict=True))
    pages["/v1/transactions"] = _inspected(transactions, access)
    administration = _administration_routes(engine.administration, access)
    return Starlette(
        routes=[*(Route(path, page) for path, page in pages.items()), *administration],
        middleware=[Middleware(_RefusesPages, origins)],
        exception_handlers={BridgeError: _refuse},
    )


def _inspected(page: Page, access: Access | None) -> Page:
    """Return a page that only those see who may inspect everything."""
    if access is None:
        return page

    async def respond(request: Request) -> Response:
        (await _caller(access, request)).check(Operation.INSPECT, None)
        return await page(request)

    return respond


async def _caller(access: Access, request: Request) -> Caller:
    client = request.client
    peer = "unknown" if client is None else peer_of(client.host, client.port)
    return await access.identify(dict(request.headers.raw), peer)


def _probes(engine: Engine, access: Access | None) -> tuple[Page, Page, Page]:
    """Return what answers `/livez`, `/readyz` and `/startedz`: without a token, so without names of groups."""
    began = engine.clock.mono()

    async def livez(_: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def readyz(_: Request) -> Response:
        not_ready_reason = "the bridge is draining" if engine.draining else engine.not_ready_reason
        if not_ready_reason is None:
            groups = _groups_not_ready(engine) if access is None else ()
            return PlainTextResponse("".join(("ready\n", *groups)))
        return PlainTextResponse(f"not ready: {not_ready_reason}\n", 503)

    async def startedz(request: Request) -> Response:
        wait = request.query_params.get("wait", "")
        if wait and not _SECONDS.fullmatch(wait):
            return PlainTextResponse("wait: a number of seconds, such as 360\n", 400)
        if engine.draining:
            return PlainTextResponse("not started: the bridge is draining\n", 503)
        if engine.started:
            return PlainTextResponse("started\n")
        if wait and engine.clock.mono() - began >= int(wait) * 1000:
            return PlainTextResponse(f"started without the backend: {engine.not_ready_reason}\n")
        return PlainTextResponse(f"not started: {engine.not_ready_reason}\n", 503)

    return livez, readyz, startedz


class _RefusesPages:
    """Checks the host and the origin of every request."""

    def __init__(self, app: ASGIApp, origins: OriginPolicy) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._origins.check(dict(scope["headers"]))
        except Forbidden as error:
            await to_response(problem_reply(error))(scope, receive, send)
            return
        await self._app(scope, receive, send)


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, BridgeError)  # noqa: S101 - Starlette passes no other
    return to_response(problem_reply(error))


def _groups_not_ready(engine: Engine) -> Iterator[str]:
    """Yield a line for each group that gets no messages now. The bridge is ready: other groups and producers work."""
    for name, group in engine.groups:
        if (reason := group.not_ready_reason) is not None:
            yield f"group {name.group} of {name.source} is not ready: {reason}\n"


def _administration_routes(administration: Administration, access: Access | None) -> list[Route]:
    """Return the routes that purge and delete."""

    def route(path: str, method: str, change: Change) -> Route:
        async def respond(request: Request) -> Response:
            caller = None if access is None else await _caller(access, request)
            names = request.path_params
            group = check_name(names["group"], "group") if "group" in names else None
            destination = check_name(names["destination"], "destination")
            if caller is not None:
                caller.check(Operation.ADMIN, destination, group)
                caller.note(change.__name__, str(Resource(destination, group)))
            await change(destination, group)
            return Response(status_code=204)

        return Route(path, respond, methods=[method])

    return [
        route(_DESTINATION, "DELETE", administration.delete),
        route(_GROUP, "DELETE", administration.delete),
        route(f"{_DESTINATION}/purge", "POST", administration.purge),
        route(f"{_GROUP}/purge", "POST", administration.purge),
    ]
