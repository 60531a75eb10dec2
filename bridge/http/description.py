"""`/v1/capabilities`, `/openapi.json`, `/asyncapi.json` and `/docs`: the bridge describes itself."""

import json
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

import msgspec

from bridge import __version__
from bridge.engine.engine import Engine
from bridge.engine.pull_and_prefetch import WAIT_MAX
from bridge.http.params import merge
from bridge.http.request_and_reply import NACK_DELAY_MAX, TRANSACTION_TIMEOUT_MAX, Limits, Reply, Request, Respond
from bridge.wire.headers import VERSION

_HERE: Final = Path(__file__).parent
_JSON: Final = (b"content-type", b"application/json")
_JAVASCRIPT: Final = b"text/javascript; charset=utf-8"

CONTENT_SECURITY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self';"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Of the console: it loads and asks only this bridge. `data:` are the icons in Swagger UI's style sheet."""


class DescriptionEndpoints:
    """The endpoints of these paths and of the files that the page at `/docs` loads."""

    def __init__(self, engine: Engine, limits: Limits, max_deliveries: int) -> None:
        self._dedup_window = engine.dedup_window
        self._features = engine.features
        self._transactions = engine.transactions
        self._limits = limits
        self._max_deliveries = max_deliveries
        self._openapi = b""
        self._asyncapi = b""

    async def capabilities(self, request: Request) -> Reply:
        """Return the support of each field, native, emulated or unsupported, which is that of every destination."""
        merge(request.headers.parameters, request.query, request.route)  # raises for an unknown parameter
        document = {
            "version": VERSION.decode("ascii"),
            "fields": {name: support.value for name, support in self._features.fields.items()},
            "durable": self._features.durable,
            "lateGroups": self._features.late_groups,
            "sharedGroups": self._features.shared_groups,
            "transactions": self._transactions.support.value,
            "dedup": {"windowMills": self._dedup_window, "scope": "bridge"},
            "limits": {
                "body": self._limits.body,
                "headers": self._limits.headers,
                "batch": self._limits.batch,
                "waitMills": WAIT_MAX,
                "leaseMills": self._limits.max_lease,
                "nackDelayMills": NACK_DELAY_MAX,
                "transactionMills": TRANSACTION_TIMEOUT_MAX,
                "maxDeliveries": self._max_deliveries,
            },
        }
        return Reply(200, [_JSON], json.dumps(document).encode())

    async def openapi(self, _: Request) -> Reply:
        """Return the OpenAPI document as JSON; the first request reads the file, in about 50 ms."""
        self._openapi = self._openapi or msgspec.json.encode(openapi(self._limits))
        return Reply(200, [_JSON], self._openapi)

    async def asyncapi(self, _: Request) -> Reply:
        """Return the AsyncAPI document as JSON; the first request reads the file."""
        self._asyncapi = self._asyncapi or msgspec.json.encode(asyncapi(self._limits))
        return Reply(200, [_JSON], self._asyncapi)


def openapi(limits: Limits) -> dict[str, Any]:
    """Return the OpenAPI document of a bridge with these limits: the file has the default ones."""
    document = _read("openapi.yaml")
    schemas, parameters = document["components"]["schemas"], document["components"]["parameters"]
    schemas["Batch"]["maxItems"] = schemas["Events"]["maxItems"] = limits.batch
    schemas["LeaseMills"]["maximum"] = limits.max_lease
    parameters["x-oms-leasemills"]["schema"]["default"] = limits.lease
    return document


def asyncapi(limits: Limits) -> dict[str, Any]:
    """Return the AsyncAPI document of a bridge with these limits: the file has the default ones."""
    document = _read("asyncapi.yaml")
    document["components"]["messages"]["Batch"]["payload"]["maxItems"] = limits.batch
    return document


def console() -> dict[str, Respond]:
    """Return what the console at `/docs` consists of, by its paths: our page, and Swagger UI from its package."""
    swagger_ui = Path(str(distribution("offapi").locate_file("offapi")))  # importing it would read all its files
    return {
        "/docs": _file(_HERE / "console.html", b"text/html; charset=utf-8"),
        "/docs/console.js": _file(_HERE / "console.js", _JAVASCRIPT),
        "/docs/swagger-ui.js": _file(swagger_ui / "swagger_bundle.js", _JAVASCRIPT),
        "/docs/swagger-ui.css": _file(swagger_ui / "swagger_style.css", b"text/css; charset=utf-8"),
    }


def _file(path: Path, media_type: bytes) -> Respond:
    """Return the endpoint of a file. Each request reads it, so that an idle bridge does not hold 2 MB."""
    headers = [(b"content-type", media_type), (b"content-security-policy", CONTENT_SECURITY)]

    async def respond(_: Request) -> Reply:
        return Reply(200, headers, read())

    def read() -> bytes:
        return path.read_bytes()

    return respond


def _read(name: str) -> dict[str, Any]:
    """Return a YAML file of this package. `msgspec.yaml` parses with libyaml, which is 20 times as fast as Python."""
    document: dict[str, Any] = msgspec.yaml.decode((_HERE / name).read_bytes())
    document["info"]["version"] = __version__
    return document
