"""`/v1/capabilities`: what this bridge and its backend can do, field by field."""

import json

from bridge.engine.engine import Engine
from bridge.http.exchange import Reply, Request
from bridge.http.limits import NACK_DELAY_MAX, Limits
from bridge.http.messages import WAIT_MAX
from bridge.wire import parameters
from bridge.wire.headers import VERSION


class Describe:
    """The endpoint of the path."""

    def __init__(self, engine: Engine, limits: Limits, max_deliveries: int) -> None:
        self._features = engine.adapter.features
        self._limits = {
            "body": limits.body,
            "headers": limits.headers,
            "batch": limits.batch,
            "waitMills": WAIT_MAX,
            "leaseMills": limits.max_lease,
            "nackDelayMills": NACK_DELAY_MAX,
            "maxDeliveries": max_deliveries,
        }

    async def capabilities(self, request: Request) -> Reply:
        """Name each field's support: native, emulated or unsupported. The same for every destination here."""
        parameters.merge(request.headers.parameters, request.query)
        document = {
            "version": VERSION.decode("ascii"),
            "fields": {name: support.value for name, support in self._features.fields.items()},
            "durable": self._features.durable,
            "lateGroups": self._features.late_groups,
            "limits": self._limits,
        }
        return Reply(200, [(b"content-type", b"application/json")], json.dumps(document).encode())
