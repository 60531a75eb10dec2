"""The results of one produce request, and its batch until it is published: what its messages have in common. Pure."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from uuid_utils import uuid7

from adapters.base import Stored
from bridge.engine.field_support import Applied
from bridge.message import FIELD_INDEX, PRIORITIES, Field, Message


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
    FIELD_INDEX[name]
    for name in (
        *("message_id", "born_timestamp", "born_host", "store_timestamp", "store_host", "priority", "partition"),
        "trace_id",
    )
)
_DELIVERY_COUNT: Final = FIELD_INDEX["delivery_count"]


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
        fields: list[Any] = list(message)  # see `complete`
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
        fields: list[Any] = list(message)
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
