"""The management port: probes, metrics, status, and purging and deleting of destinations and groups."""

from collections.abc import Awaitable, Callable, Iterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from bridge import __version__
from bridge.engine.destination_names import check_name
from bridge.engine.destination_registry import Administration
from bridge.engine.engine import Engine
from bridge.errors import BridgeError
from bridge.http.data_port import MANAGEMENT_PAGES, to_response
from bridge.http.origin_policy import OriginPolicy
from bridge.http.request_and_reply import problem_reply
from bridge.http.transactions import describe_all
from bridge.metrics import BridgeMetrics

_DESTINATION = "/v1/destinations/{destination}"
_GROUP = "/v1/destinations/{destination}/groups/{group}"

Change = Callable[[str, str | None], Awaitable[None]]


def management_app(engine: Engine, metrics: BridgeMetrics, backend: str, origins: OriginPolicy) -> Starlette:
    """Build the application of the management port: probes, metrics, status, and what an operator may change.

    `backend`: its URL without secrets. `origins` is for the changes only.
    """

    async def livez(_: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def readyz(_: Request) -> Response:
        not_ready_reason = "the bridge is draining" if engine.draining else engine.not_ready_reason
        if not_ready_reason is None:
            return PlainTextResponse("".join(("ready\n", *_groups_not_ready(engine))))
        return PlainTextResponse(f"not ready: {not_ready_reason}\n", 503)

    async def exposition(_: Request) -> Response:
        await metrics.count_unsettled()
        return Response(metrics.exposition(), media_type="text/plain; version=1.0.0; charset=utf-8")

    async def status(_: Request) -> Response:
        groups = [
            {
                "source": name.source,
                "consumerId": name.group,
                "prefetched": group.buffer.size,
                "ready": group.buffer.ready,
                "leases": len(group.buffer.leases),
                "notReadyReason": group.not_ready_reason,
            }
            for name, group in engine.groups
        ]
        return JSONResponse(
            {
                "version": __version__,
                "backend": backend,
                "ready": engine.not_ready_reason is None and not engine.draining,
                "notReadyReason": engine.not_ready_reason,
                "draining": engine.draining,
                "counts": metrics.totals(),
                "groups": groups,
            }
        )

    async def transactions(_: Request) -> Response:
        try:
            return Response(describe_all(engine.transactions.all_open()), media_type="application/json")
        except BridgeError as error:
            return to_response(problem_reply(error))

    pages = dict(zip(MANAGEMENT_PAGES, (livez, readyz, exposition, status), strict=True))
    pages["/v1/transactions"] = transactions
    return Starlette(
        routes=[*(Route(path, page) for path, page in pages.items()), *_administration_routes(engine, origins)]
    )


def _groups_not_ready(engine: Engine) -> Iterator[str]:
    """Yield a line for each group that gets no messages now. The bridge is ready: other groups and producers work."""
    for name, group in engine.groups:
        if (reason := group.not_ready_reason) is not None:
            yield f"group {name.group} of {name.source} is not ready: {reason}\n"


def _administration_routes(engine: Engine, origins: OriginPolicy) -> list[Route]:
    """Return the routes that purge and delete. `origins` refuses web pages: any page could send such a POST."""
    administration: Administration = engine.administration

    def route(path: str, method: str, change: Change) -> Route:
        async def respond(request: Request) -> Response:
            try:
                origins.check(dict(request.headers.raw))
                names = request.path_params
                group = check_name(names["group"], "group") if "group" in names else None
                await change(check_name(names["destination"], "destination"), group)
            except BridgeError as error:
                return to_response(problem_reply(error))
            return Response(status_code=204)

        return Route(path, respond, methods=[method])

    return [
        route(_DESTINATION, "DELETE", administration.delete),
        route(_GROUP, "DELETE", administration.delete),
        route(f"{_DESTINATION}/purge", "POST", administration.purge),
        route(f"{_GROUP}/purge", "POST", administration.purge),
    ]
