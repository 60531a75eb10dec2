"""One produce request, its messages, its results, and how the backend honours the fields of each. Pure."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from types import NoneType
from typing import Any, Final, NamedTuple

from uuid_utils import uuid7

from adapters.base import Stored, Support
from bridge.errors import FieldUnsupported, HeaderInvalid
from bridge.message import FIELDS, PRIORITIES, Field, Message

_IGNORED: Final = "ignored"
_EXACTLY_ONCE: Final = 2
_FEATURE_FIELDS: Final = tuple(f for f in FIELDS if f.is_feature)
_feature_values: Final = itemgetter(*(Message._fields.index(f.attribute) for f in _FEATURE_FIELDS))
COMBINATIONS_KEPT: Final = 1024
"""Combinations of fields whose `Applied` is remembered: all that occur, unless a client tries every one."""


class Applied(dict[str, str]):
    """How each field that a message carried is honoured: field name -> `native`, `emulated` or `ignored`."""

    __slots__ = ("text",)

    def __init__(self, fields: Iterable[tuple[str, str]]) -> None:
        super().__init__(fields)
        self.text = ",".join(f"{name}={support}" for name, support in self.items())
        """The value of `x-oms-applied`."""


class FieldSupport:
    """What one backend does with each field."""

    def __init__(self, fields: Mapping[str, Support]) -> None:
        self._support = {
            f.name: _IGNORED if fields[f.name] is Support.UNSUPPORTED else fields[f.name].value for f in _FEATURE_FIELDS
        }
        self._applied: dict[tuple[type, ...], Applied] = {}
        """By the types of the feature fields: `NoneType` if a field is not set."""

    def applied(self, message: Message) -> Applied:
        """Return how each field that the client set is honoured; without a meaning or support it is ignored."""
        types = tuple(map(type, _feature_values(message)))
        applied = self._applied.get(types)
        if applied is None:
            fields = [field.name for field, kind in zip(_FEATURE_FIELDS, types, strict=True) if kind is not NoneType]
            applied = Applied((name, self._support[name]) for name in fields)
            if len(self._applied) < COMBINATIONS_KEPT:
                self._applied[types] = applied
        if message.qos == _EXACTLY_ONCE:
            applied = Applied({**applied, "qos": _IGNORED}.items())
        if message.priority is not None and message.priority not in PRIORITIES:
            applied = Applied({**applied, "priority": _IGNORED}.items())
        return applied

    def check_required(self, require: Sequence[Field], applied: Applied) -> None:
        """Raise `FieldUnsupported` if a field that must be honoured is ignored."""
        for field in require:
            if applied.get(field.name, self._support[field.name]) == _IGNORED:
                raise FieldUnsupported(f"x-oms-require: {field.name} cannot be honoured here; nothing was stored.")


def check_properties(message: Message, refusal_of: Callable[[str], str | None]) -> None:
    """Raise `HeaderInvalid` for a property whose name the backend refuses; `refusal_of`: see `adapters.base`."""
    for name in message.properties:
        if (refusal := refusal_of(name)) is not None:
            raise HeaderInvalid(f"{message.destination}: {refusal}")


class Produced(NamedTuple):
    """The result of producing one message: what the response says about it."""

    message_id: str
    store_timestamp: int
    store_host: str
    stored: Stored
    applied: Applied
    duplicate: bool = False
    """Whether this is the result of an earlier message of the same name, and nothing was stored for this one."""
    transaction: str | None = None
    """The id of its transaction; `store_timestamp` is 0 while that is open. None: it has none."""


class WaitingMessage(NamedTuple):
    """A message that the backend has not stored yet; without its body, see `Producer.produce_all`."""

    message_id: str
    store_timestamp: int
    applied: Applied
    future: asyncio.Future[Stored]


Outcome = Produced | WaitingMessage | Exception


_TRACE_ID: Final = slice(3, 35)
"""Position of the trace id in a W3C traceparent."""
_MESSAGE_ID, _BORN_TIMESTAMP, _BORN_HOST, _STORE_TIMESTAMP, _STORE_HOST, _PRIORITY, _PARTITION, _TRACE_ID_FIELD = (
    Message._fields.index(name)
    for name in (
        *("message_id", "born_timestamp", "born_host", "store_timestamp", "store_host", "priority", "partition"),
        "trace_id",
    )
)
_DELIVERY_COUNT: Final = Message._fields.index("delivery_count")


class ProduceRequest(NamedTuple):
    """What the messages of one request have in common."""

    require: Sequence[Field]
    """The fields that must be honoured."""
    peer: str
    client: str
    wall: int
    """When the messages are judged, ms since 1970."""

    def complete_prepared(self, message: Message) -> Message:
        """Fill in the fields that a prepared message has; `complete` fills in the others when it is committed."""
        fields: list[Any] = [*message]  # see `complete`
        fields[_MESSAGE_ID] = message.message_id or str(uuid7())
        fields[_BORN_TIMESTAMP] = self.wall if message.born_timestamp is None else message.born_timestamp
        fields[_BORN_HOST] = message.born_host or self.peer
        fields[_STORE_TIMESTAMP] = fields[_STORE_HOST] = None
        return tuple.__new__(Message, fields)

    def complete(self, message: Message, store_host: str, partition: int | None) -> Message:
        """Fill in missing fields, replace those that only the bridge may set, remove values without a meaning."""
        trace_id, parent = message.trace_id, message.traceparent
        if parent is not None and trace_id is None:
            trace_id = parent[_TRACE_ID]
        # a list: `_replace` with nine fields takes four times as long
        fields: list[Any] = [*message]
        fields[_MESSAGE_ID] = message.message_id or str(uuid7())
        fields[_BORN_TIMESTAMP] = self.wall if message.born_timestamp is None else message.born_timestamp
        fields[_BORN_HOST] = message.born_host or self.peer
        fields[_STORE_TIMESTAMP] = self.wall
        fields[_STORE_HOST] = store_host
        if message.priority is not None and message.priority not in PRIORITIES:  # a range compares None with each
            fields[_PRIORITY] = None
        fields[_PARTITION] = partition
        fields[_TRACE_ID_FIELD] = trace_id
        fields[_DELIVERY_COUNT] = None
        return tuple.__new__(Message, fields)


class Batch:
    """The messages of one batch, until all of them are passed to the backend."""

    def __init__(self, request: ProduceRequest) -> None:
        self.request = request
        """Judges the next messages; made anew when something was waited for."""
        self.outcomes: list[Outcome | None] = []
        """One for each message that was judged; None: it is not passed to the backend yet."""
        self.unsent: list[tuple[int, Message, int, Applied]] = []
        """Messages that are not passed to the backend yet, with their indexes in `outcomes` and their bytes."""
        self.unsent_bytes = 0
        """Bytes that they count in limits."""
        self.partitions: dict[str, int] = {}
        """By destination, as long as nothing is waited for."""


def is_expired(message: Message) -> bool:
    """Whether a complete message will never be delivered: it has expired, or expires before it is due."""
    expires = message.expires
    return expires is not None and expires <= max(message.store_timestamp or 0, message.due)


def is_delayed(message: Message) -> bool:
    """Whether a complete message is due later than now."""
    return bool(message.delay_time) and message.due > (message.store_timestamp or 0)
