"""The management port's requests that change something: purge and delete destinations and groups."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bridge.engine.destination_registry import Administration
from bridge.engine.engine import Engine
from bridge.engine.names import check_name
from bridge.errors import BridgeError
from bridge.http.origin_policy import OriginPolicy
from bridge.http.request_reply import problem_reply

_DESTINATION = "/v1/destinations/{destination}"
_GROUP = "/v1/destinations/{destination}/groups/{group}"

Change = Callable[[str, str | None], Awaitable[None]]


def administration_routes(engine: Engine, origins: OriginPolicy) -> list[Route]:
    """Return the routes. `origins` keeps web pages out: any page of the machine could send such a POST."""
    administration: Administration = engine.administration

    def route(path: str, method: str, change: Change) -> Route:
        async def respond(request: Request) -> Response:
            try:
                origins.check(dict(request.headers.raw))
                names = request.path_params
                group = check_name(names["group"], "group") if "group" in names else None
                await change(check_name(names["destination"], "destination"), group)
            except BridgeError as error:
                reply = problem_reply(error)
                response = Response(reply.body, reply.status)
                response.raw_headers += reply.headers
                return response
            return Response(status_code=204)

        return Route(path, respond, methods=[method])

    return [
        route(_DESTINATION, "DELETE", administration.delete),
        route(_GROUP, "DELETE", administration.delete),
        route(f"{_DESTINATION}/purge", "POST", administration.purge),
        route(f"{_GROUP}/purge", "POST", administration.purge),
    ]
