"""What becomes of the fields of a message in brokers that others write to as well: alike for all adapters. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from adapters.foreign import Odd, is_plain, is_traceparent
from bridge.message import FIELDS, Field, Message

FIELD_PREFIX: Final = "oms_h_"
PROPERTY_PREFIX: Final = "oms_p_"
INTERNAL_PREFIX: Final = "oms_d_"

PLACES: Final[Mapping[str, int]] = {name: place for place, name in enumerate(Message._fields)}
"""Where each attribute stands in a `Message`."""

DELAY_MAX: Final = 367 * 24 * 3600 * 1000
"""How far ahead of its own timestamp a record may be due, ms: what the bridge accepts, and a day for clocks
that differ. A message that is never due would hold the position of its group for ever."""

_NOT_READ: Final = frozenset({"destination", "partition", "compression", "deliveryCount"})
"""Fields that the bridge, or where a message lies, knows better: such a header is like any other of a producer."""
_BORN: Final = PLACES["born_timestamp"]
_BORN_HOST: Final = PLACES["born_host"]
_STORED: Final = PLACES["store_timestamp"]
_TRACE_ID: Final = PLACES["trace_id"]
_DELAY: Final = PLACES["delay_time"]
_CONTENT_TYPE: Final = PLACES["content_type"]
_PARENT: Final = PLACES["traceparent"]
_STATE: Final = PLACES["tracestate"]
_PROPERTIES: Final = PLACES["properties"]

_HEX_ID: Final = re.compile(r"[0-9a-f]{32}")
_IN_PARENT: Final = slice(3, 35)


def texts(elsewhere: Collection[str]) -> tuple[tuple[str, int], ...]:
    """Return the header's name and the place of each text field, but for those whose text stands elsewhere."""
    return _headers(f for f in FIELDS if f.maximum is None and f.name not in elsewhere)


def numbers(elsewhere: Collection[str]) -> tuple[tuple[str, int], ...]:
    """Return the same of each field that is a number."""
    return _headers(f for f in FIELDS if f.maximum is not None and f.name not in elsewhere)


def readers() -> dict[str, tuple[int, int | None]]:
    """Return place and largest number of each header that is read; None: it is text."""
    return {f"{FIELD_PREFIX}{f.name}": (PLACES[f.attribute], f.maximum) for f in FIELDS if f.name not in _NOT_READ}


def check(values: list[Any], odd: Odd) -> None:
    """Take back what no reply could carry, or nobody could mean; what it was is kept as a property."""
    values[_BORN_HOST] = values[_BORN_HOST] or None
    if (delay := values[_DELAY]) and (values[_BORN] or 0) + delay > (values[_STORED] or 0) + DELAY_MAX:
        odd.append((f"{FIELD_PREFIX}delayTime", b"%d" % delay))
        values[_DELAY] = None
    if (kind := values[_CONTENT_TYPE]) is not None and not is_plain(kind):
        odd.append(("content-type", kind.encode()))
        values[_CONTENT_TYPE] = None
    parent, trace_id = values[_PARENT], values[_TRACE_ID]
    if parent is not None and not is_traceparent(parent):
        odd.append(("traceparent", parent.encode()))
        values[_PARENT] = parent = None
    if parent is not None:
        if trace_id is None:
            values[_TRACE_ID] = parent[_IN_PARENT]
        elif parent == parent_of(trace_id):
            values[_PARENT] = parent = None  # ours, for native consumers
    if (state := values[_STATE]) is not None and (parent is None or not is_plain(state)):
        odd.append(("tracestate", state.encode()))
        values[_STATE] = None


def parent_of(trace_id: str) -> str | None:
    """Return a traceparent for native consumers; its span is the id's second half backwards, to be known again."""
    if _HEX_ID.fullmatch(trace_id) is None or not trace_id[16:].strip("0"):
        return None
    return f"00-{trace_id}-{trace_id[:15:-1]}-01"


def without_surrogates(message: Message) -> Message:
    """Put `?` for halves of surrogate pairs, which UTF-8 has no bytes for."""
    cleaned = [_clean(value) if isinstance(value, str) else value for value in message]
    cleaned[_PROPERTIES] = {_clean(name): _clean(value) for name, value in message.properties.items()}
    return Message._make(cleaned)


def _headers(fields: Iterable[Field]) -> tuple[tuple[str, int], ...]:
    return tuple((f"{FIELD_PREFIX}{f.name}", PLACES[f.attribute]) for f in fields)


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
