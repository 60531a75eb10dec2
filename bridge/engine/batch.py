"""The messages of one produce request on their way to the backend, and how each is completed. Pure."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from uuid_utils import uuid7

from bridge.engine.client_limits import client_of
from bridge.engine.field_support import Applied
from bridge.engine.produced import Outcome, Result
from bridge.errors import BridgeError
from bridge.message import FIELD_INDEX, PRIORITIES, Field, Message

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


class Batch:
    """The messages of one request, and what became of each. A single message is a batch of one."""

    __slots__ = (
        *("_messages", "client", "key", "outcomes", "partitions", "peer", "require", "results", "unsent"),
        *("unsent_bytes", "unsent_facts", "wall"),
    )

    def __init__(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str, key: str | None = None
    ) -> None:
        """`require`: the fields that must be honoured. `peer`: host:port of the client, for bornHost.

        `key`: the idempotency key of the request. A message that is an error already is its own result.
        """
        self._messages = messages
        self.require = require
        self.peer = peer
        self.client = client_of(peer)
        self.key = key
        self.wall = 0
        """When the messages are judged, ms since 1970; made anew when something was waited for."""
        self.outcomes: list[Outcome | None] = []
        """One for each message that was judged; None: it is not passed to the backend yet."""
        self.results: Sequence[Result] = ()
        """One for each message, in the same order, once the backend has answered."""
        self.unsent: list[Message] = []
        """Messages that are not passed to the backend yet."""
        self.unsent_facts: list[tuple[int, int, Applied]] = []
        """Of each of them: its index in `outcomes`, the bytes that it counts in limits, and which fields apply."""
        self.unsent_bytes = 0
        """Sum of these bytes."""
        self.partitions: dict[str, int] = {}
        """By destination, as long as nothing is waited for."""

    def __len__(self) -> int:
        return len(self._messages)

    def is_named(self) -> bool:
        """Return whether the client names a message, so that its retries are recognized."""
        if self.key is not None:
            return True
        for each in self._messages:  # noqa: SIM110 - a generator for each message takes as long as the rest of a step
            if isinstance(each, Message) and each.message_id is not None:
                return True
        return False

    def take(self) -> Sequence[Message | BridgeError]:
        """Return the messages, and hold them no more.

        While the backend stores them nobody else holds their bodies, so that its copy is the last one and can be freed
        once it is written: 64 batches of 100 KiB at once took 20 MiB more.
        """
        messages, self._messages = self._messages, ()
        return messages

    def replace(self, messages: Sequence[Message | BridgeError]) -> None:
        """Put others in the place of the messages that were taken."""
        self._messages = messages

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


Publish = Callable[[Batch], Awaitable[None]]
"""Passes a batch on, and sets its outcomes; the step that waits for the backend sets its results."""
Step = Callable[[Publish], Publish]
"""Returns what it does around the steps after it. Built once at the start: a step that is off is not there."""


def is_expired(message: Message) -> bool:
    """Whether a complete message will never be delivered: it has expired, or expires before it is due."""
    expires = message.expires
    return expires is not None and expires <= max(message.store_timestamp or 0, message.due)


def is_delayed(message: Message) -> bool:
    """Whether a complete message is due later than now."""
    return bool(message.delay_time) and message.due > (message.store_timestamp or 0)
