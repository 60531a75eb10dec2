"""What the bridge answers, read: receipts, deliveries, results of a batch, errors."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import httpx

from bridge.errors import BridgeError
from bridge.message import LONG_MAX, Message
from bridge.wire import problem
from bridge.wire.headers import Headers, read_number

_OK: Final = 200


class Receipt(NamedTuple):
    """What the bridge says of a stored message. Times in ms since 1970 UTC."""

    message_id: str
    store_timestamp: int
    store_host: str
    partition: int | None
    offset: int | None
    """The backend's own position; None where it has none, or not yet (a delayed message)."""
    applied: Mapping[str, str]
    """Per optional field that the message carried: native, emulated or ignored."""


class Delivery(NamedTuple):
    """A message that was pulled."""

    message: Message
    receipt: str | None
    """What ends the lease; None when pulled without ack."""
    lease_until: int | None
    """When the lease ends, ms since 1970 UTC."""
    delivery_count: int
    """1 on the first delivery."""


def result(item: dict[str, Any]) -> Receipt | BridgeError:
    """Read what became of one message of a batch."""
    if item["status"] != _OK:
        return problem.decode(item["status"], item)
    return Receipt(
        item["messageId"],
        item["storeTimestamp"],
        item["storeHost"],
        item.get("partition"),
        item.get("offset"),
        applied(item.get("applied", "")),
    )


def applied(text: str) -> dict[str, str]:
    """Read how each optional field was honoured."""
    pairs = (item.partition("=") for item in text.split(",") if item)
    return {name.strip(): how.strip() for name, _, how in pairs}


def number(headers: Headers, name: str) -> int | None:
    """Read a parameter that is a number; None when it is absent."""
    text = headers.parameters.get(name)
    return None if text is None else read_number(f"x-oms-{name}", text, LONG_MAX)


def json_object(response: httpx.Response) -> dict[str, Any]:
    """Return the answer's JSON object; an empty one when it holds none."""
    try:
        document = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def refusal(response: httpx.Response) -> BridgeError:
    """Read the error that the bridge answered."""
    headers = response.headers
    said = {"code": headers.get("x-oms-error", ""), "retrySafe": headers.get("x-oms-retry-safe") == "true"}
    error = problem.decode(response.status_code, said | json_object(response))
    after = headers.get("retry-after", "")
    error.retry_after = int(after) if after.isascii() and after.isdigit() else None
    return error
