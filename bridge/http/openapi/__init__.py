"""`/v1/capabilities`, `/openapi.json`, `/asyncapi.json` and `/docs`: the bridge describes itself.

The first request for a document imports what builds it: 1 MiB of memory.
"""
# ruff: noqa: PLC0415 - see above

import json
from typing import Final

from bridge.engine.engine import Engine
from bridge.engine.pull_and_prefetch import WAIT_MAX
from bridge.http.params import merge
from bridge.http.request_and_reply import NACK_DELAY_MAX, TRANSACTION_TIMEOUT_MAX, Limits, Reply, Request
from bridge.wire.headers import VERSION

CONTENT_SECURITY: Final = b"default-src 'none'; style-src 'unsafe-inline'"


class DescriptionEndpoints:
    """The endpoints of the four paths."""

    def __init__(self, engine: Engine, limits: Limits, max_deliveries: int) -> None:
        self._dedup_window = engine.dedup_window
        self._features = engine.adapter.features
        self._transactions = engine.transactions
        self._limits = limits
        self._max_deliveries = max_deliveries
        self._document = b""
        self._asyncapi = b""
        self._page = b""

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
        return Reply(200, [(b"content-type", b"application/json")], json.dumps(document).encode())

    async def openapi(self, _: Request) -> Reply:
        """Return the OpenAPI document, which the first request builds."""
        if not self._document:
            from bridge.http.openapi import document

            self._document = json.dumps(document.build(self._limits), separators=(",", ":")).encode()
        return Reply(200, [(b"content-type", b"application/json")], self._document)

    async def asyncapi(self, _: Request) -> Reply:
        """Return the AsyncAPI document, which the first request builds."""
        if not self._asyncapi:
            from bridge.http.openapi import asyncapi

            self._asyncapi = json.dumps(asyncapi.build(self._limits), separators=(",", ":")).encode()
        return Reply(200, [(b"content-type", b"application/json")], self._asyncapi)

    async def page(self, _: Request) -> Reply:
        """Return the OpenAPI document as HTML."""
        if not self._page:
            from bridge.http.openapi import document
            from bridge.http.openapi.html_page import render

            self._page = render(document.build(self._limits)).encode()
        headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-security-policy", CONTENT_SECURITY)]
        return Reply(200, headers, self._page)
