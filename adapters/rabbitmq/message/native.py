"""What native producers say in other places than headers, and copies of what they wrote. Pure."""

import json
from datetime import datetime
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final

from pika import BasicProperties

from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties
from adapters.field_headers import FIELD_INDEX, INTERNAL_PREFIX, PROPERTY_PREFIX
from adapters.rabbitmq.message.headers import BROKERS, NATIVE, NATIVE_PREFIX, ROUTING_KEY, STORED
from adapters.rabbitmq.topology.names import routing_key
from adapters.unmapped_headers import Unmapped, as_text
from bridge.message import LONG_MAX

_BORN: Final = FIELD_INDEX["born_timestamp"]
_STORED: Final = FIELD_INDEX["store_timestamp"]
_PARTITION: Final = FIELD_INDEX["partition"]
_PRIORITY: Final = FIELD_INDEX["priority"]
_MILLISECONDS: Final = 10**11
"""A time in seconds as large, after the year 5000, was meant in milliseconds."""
_LEVELS: Final = 10
"""Priorities of AMQP, from 0."""
_COPIES: Final = ("CC", "BCC")
"""Headers that the broker takes for more routing keys, from any publisher."""
_KEPT: Final = (
    *("content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to", "expiration"),
    *("message_id", "timestamp", "type", "app_id", "cluster_id"),
)
"""What a copy has as well: no `user_id`, which the broker compares with who publishes."""


def read_native(arrival: Arrival, values: list[Any], unmapped: Unmapped) -> None:
    """Take from there what headers have not said."""
    slots = arrival.properties
    if slots.timestamp is not None:
        _read_time(slots.timestamp, values)
    if slots.priority is not None:
        if slots.priority >= _LEVELS:
            unmapped.append((f"{NATIVE_PREFIX}priority", bytes_of(slots.priority)))
        elif values[_PRIORITY] is None:
            values[_PRIORITY] = slots.priority + 1
    for name in NATIVE:
        if (value := getattr(slots, name)) is not None:
            unmapped.append((NATIVE_PREFIX + name, bytes_of(value)))
    key = (slots.headers or {}).get(ROUTING_KEY, arrival.routing_key)
    if key and key != routing_key(values[_PARTITION]):
        unmapped.append((f"{NATIVE_PREFIX}routing_key", bytes_of(key)))


def hash_of(slots: BasicProperties, body: bytes) -> str:
    """Return an id for a message without one, the same wherever and whenever it is read."""
    digest = blake2b(digest_size=16)
    parts = [body, *(bytes_of(value) for value in (slots.correlation_id, slots.timestamp, slots.type, slots.reply_to))]
    for name, value in sorted((slots.headers or {}).items(), key=itemgetter(0)):
        # a stream (3.10.8) keeps no lists and no tables, and no order: what was read from one would have another id
        if name not in BROKERS and not name.startswith(INTERNAL_PREFIX) and not isinstance(value, list | dict):
            parts += (bytes_of(name), bytes_of(value))
    for part in parts:
        digest.update(b"%d:" % len(part) + part)
    return f"amqp-{digest.hexdigest()}"


def copied(arrival: Arrival) -> Properties:
    """Return the properties for the same message in another queue: it is read there as it is read here.

    Left out is what the broker has noted, and what it would act on: other routing keys, a user who is not the bridge.
    """
    slots = arrival.properties
    copy = Properties(**{name: getattr(slots, name) for name in _KEPT})
    copy.headers = headers = {
        PROPERTY_PREFIX + name if name in _COPIES else name: value
        for name, value in (slots.headers or {}).items()
        if name not in BROKERS
    }
    stored = number_of(headers.get(STORED))
    if stored is not None and stored <= LONG_MAX:
        copy.expiration = None  # ours: a header says when it ends
        return copy
    if slots.user_id is not None:
        headers[f"{PROPERTY_PREFIX}{NATIVE_PREFIX}user_id"] = text_of(slots.user_id)
    if not slots.message_id:
        copy.message_id = hash_of(slots, arrival.body)
    headers.setdefault(ROUTING_KEY, arrival.routing_key)
    return copy


def _read_time(time: int, values: list[Any]) -> None:
    milliseconds = time if time >= _MILLISECONDS else time * 1000
    if milliseconds <= LONG_MAX:
        values[_STORED] = milliseconds
        if values[_BORN] is None:
            values[_BORN] = milliseconds


_ISO_UTC: Final = "+00:00"
_DIGITS_MAX: Final = 19


def text_of(value: str | bytes) -> str:
    """Return a short string as text; bytes that are none as a data URL."""
    return value if isinstance(value, str) else as_text(value)


def bytes_of(value: Any) -> bytes:  # noqa: ANN401 - whatever a table holds
    """Return a value as the text of a property, in UTF-8; bytes stay what they are.

    Numbers in digits, `true`, nothing for no value, times as `2026-11-21T09:30:00Z`, lists and tables as JSON.
    """
    if isinstance(value, bytes):
        return value
    return _plain(value).encode("utf-8", "replace")


def number_of(value: object) -> int | None:
    """Return what is a whole number, or the digits of one, from 0 on."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if value >= 0 else None
    if isinstance(value, str) and len(value) <= _DIGITS_MAX and value.isascii() and value.isdigit():
        return int(value)
    return None


def _plain(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat().replace(_ISO_UTC, "Z")
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_inside)
    return str(value)


def _inside(value: Any) -> str:  # noqa: ANN401
    return as_text(value) if isinstance(value, bytes) else _plain(value)
