"""Maps the fields of a message to headers of a broker that native producers write to, too: alike for all adapters.

Pure: no I/O, no clock.
"""

import re
from collections.abc import Collection, Iterable
from typing import Any, Final

from adapters.native_headers import Unmapped, is_plain, is_traceparent
from bridge.message import FIELD_INDEX, FIELDS, Field, Message

BROKER_FIELD_PREFIX: Final = "oms_h_"
PROPERTY_PREFIX: Final = "oms_p_"
INTERNAL_PREFIX: Final = "oms_d_"

RECORD_DELAY_MAX: Final = 367 * 24 * 3600 * 1000
"""How far after its timestamp a record may be due, ms: the bridge's limit, and a day for clocks that differ.
A message that is never due would block the position of its group without end."""

_NOT_READ: Final = frozenset({"destination", "partition", "compression", "deliveryCount"})
"""Fields that the bridge or the record's location determine: a header of that name becomes a property."""
_BORN: Final = FIELD_INDEX["born_timestamp"]
_BORN_HOST: Final = FIELD_INDEX["born_host"]
_STORED: Final = FIELD_INDEX["store_timestamp"]
_TRACE_ID: Final = FIELD_INDEX["trace_id"]
_DELAY: Final = FIELD_INDEX["delay_time"]
_CONTENT_TYPE: Final = FIELD_INDEX["content_type"]
_PARENT: Final = FIELD_INDEX["traceparent"]
_STATE: Final = FIELD_INDEX["tracestate"]
_PROPERTIES: Final = FIELD_INDEX["properties"]

_HEX_ID: Final = re.compile(r"[0-9a-f]{32}")
_IN_PARENT: Final = slice(3, 35)


def text_headers(elsewhere: Collection[str]) -> tuple[tuple[str, int], ...]:
    """Return header name and index of each text field, except the fields that are stored elsewhere."""
    return _headers(f for f in FIELDS if f.maximum is None and f.name not in elsewhere)


def number_headers(elsewhere: Collection[str]) -> tuple[tuple[str, int], ...]:
    """Return header name and index of each number field, except the fields that are stored elsewhere."""
    return _headers(f for f in FIELDS if f.maximum is not None and f.name not in elsewhere)


def header_fields() -> dict[str, tuple[int, int | None]]:
    """Return index and largest number of each header that is read; None: it is text."""
    return {
        f"{BROKER_FIELD_PREFIX}{f.name}": (FIELD_INDEX[f.attribute], f.maximum)
        for f in FIELDS
        if f.name not in _NOT_READ
    }


def move_invalid(values: list[Any], unmapped: Unmapped) -> None:
    """Move values that a response cannot carry, or that are impossible, from their fields to the unmapped headers."""
    values[_BORN_HOST] = values[_BORN_HOST] or None
    if (delay := values[_DELAY]) and (values[_BORN] or 0) + delay > (values[_STORED] or 0) + RECORD_DELAY_MAX:
        unmapped.append((f"{BROKER_FIELD_PREFIX}delayTime", b"%d" % delay))
        values[_DELAY] = None
    if (kind := values[_CONTENT_TYPE]) is not None and not is_plain(kind):
        unmapped.append(("content-type", kind.encode()))
        values[_CONTENT_TYPE] = None
    parent, trace_id = values[_PARENT], values[_TRACE_ID]
    if parent is not None and not is_traceparent(parent):
        unmapped.append(("traceparent", parent.encode()))
        values[_PARENT] = parent = None
    if parent is not None:
        if trace_id is None:
            values[_TRACE_ID] = parent[_IN_PARENT]
        elif parent == traceparent_of(trace_id):
            values[_PARENT] = parent = None  # written by the bridge, for native consumers
    if (state := values[_STATE]) is not None and (parent is None or not is_plain(state)):
        unmapped.append(("tracestate", state.encode()))
        values[_STATE] = None


def traceparent_of(trace_id: str) -> str | None:
    """Return a traceparent for native consumers; its span, the id's second half reversed, marks it as the bridge's."""
    if _HEX_ID.fullmatch(trace_id) is None or not trace_id[16:].strip("0"):
        return None
    return f"00-{trace_id}-{trace_id[:15:-1]}-01"


def without_surrogates(message: Message) -> Message:
    """Replace halves of surrogate pairs by `?`: UTF-8 cannot encode them."""
    cleaned = [_clean(value) if isinstance(value, str) else value for value in message]
    cleaned[_PROPERTIES] = {_clean(name): _clean(value) for name, value in message.properties.items()}
    return Message._make(cleaned)


def _headers(fields: Iterable[Field]) -> tuple[tuple[str, int], ...]:
    return tuple((f"{BROKER_FIELD_PREFIX}{f.name}", FIELD_INDEX[f.attribute]) for f in fields)


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
