"""The management port: probes, metrics and status. Never messages."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from bridge import __version__
from bridge.engine.engine import Engine
from bridge.telemetry import Telemetry


def management_app(engine: Engine, telemetry: Telemetry, backend: str) -> Starlette:
    """Build the application. `backend` is the backend's URL, already free of secrets."""

    async def livez(_: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def readyz(_: Request) -> Response:
        trouble = "the bridge is draining" if engine.draining else engine.trouble
        if trouble is None:
            return PlainTextResponse("ready\n")
        return PlainTextResponse(f"not ready: {trouble}\n", 503)

    async def metrics(_: Request) -> Response:
        return Response(telemetry.exposition(), media_type="text/plain; version=1.0.0; charset=utf-8")

    async def status(_: Request) -> Response:
        groups = [
            {
                "source": name.source,
                "consumerId": name.group,
                "window": group.window.size,
                "ready": group.window.ready,
                "leases": len(group.window.leases),
            }
            for name, group in engine.groups
        ]
        return JSONResponse(
            {
                "version": __version__,
                "backend": backend,
                "ready": engine.trouble is None and not engine.draining,
                "trouble": engine.trouble,
                "draining": engine.draining,
                "counts": telemetry.totals(),
                "groups": groups,
            }
        )

    pages = {"/livez": livez, "/readyz": readyz, "/metrics": metrics, "/status": status}
    return Starlette(routes=[Route(path, page) for path, page in pages.items()])
