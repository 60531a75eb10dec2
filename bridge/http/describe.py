"""What the bridge says about itself to its clients: capabilities, and the contract as OpenAPI and as a page."""

import json

from bridge.engine.engine import Engine
from bridge.http import docs_page, openapi
from bridge.http.exchange import Reply, Request
from bridge.http.limits import NACK_DELAY_MAX, Limits
from bridge.http.messages import WAIT_MAX
from bridge.wire import parameters
from bridge.wire.headers import VERSION


class Describe:
    """The endpoints of the three paths."""

    def __init__(self, engine: Engine, limits: Limits, max_deliveries: int) -> None:
        self._features = engine.adapter.features
        self._allowed = limits
        self._limits = {
            "body": limits.body,
            "headers": limits.headers,
            "batch": limits.batch,
            "waitMills": WAIT_MAX,
            "leaseMills": limits.max_lease,
            "nackDelayMills": NACK_DELAY_MAX,
            "maxDeliveries": max_deliveries,
        }
        self._document = b""
        self._page = b""

    async def capabilities(self, request: Request) -> Reply:
        """Name each field's support: native, emulated or unsupported. The same for every destination here."""
        parameters.merge(request.headers.parameters, request.query)
        document = {
            "version": VERSION.decode("ascii"),
            "fields": {name: support.value for name, support in self._features.fields.items()},
            "durable": self._features.durable,
            "lateGroups": self._features.late_groups,
            "sharedGroups": self._features.shared_groups,
            "limits": self._limits,
        }
        return Reply(200, [(b"content-type", b"application/json")], json.dumps(document).encode())

    async def openapi(self, _: Request) -> Reply:
        """Return the OpenAPI document, built when somebody first asks."""
        if not self._document:
            self._document = json.dumps(openapi.build(self._allowed), separators=(",", ":")).encode()
        return Reply(200, [(b"content-type", b"application/json")], self._document)

    async def page(self, _: Request) -> Reply:
        """Return the same as HTML."""
        if not self._page:
            self._page = docs_page.render(openapi.build(self._allowed)).encode()
        headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-security-policy", docs_page.CONTENT_SECURITY),
        ]
        return Reply(200, headers, self._page)
