"""Messages of transactions: the request that prepares them, one that was judged, and their completion at a commit."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from uuid_utils import uuid7

from adapters.base import Stored
from bridge.engine.clock import Clock
from bridge.engine.dedup import Name, name_of
from bridge.engine.field_support import Applied
from bridge.engine.producer import Producer
from bridge.errors import BridgeError, HeaderInvalid
from bridge.message import Message

ID_MAX: Final = 255
"""Longest id of a transaction, characters: backends remember the ids of many."""


class TransactionRequest(NamedTuple):
    """What a produce says about its transaction."""

    id: str | None
    """None: the bridge makes one, unless the messages name one."""
    commits: bool
    """Whether the transaction is committed with the messages of this request."""
    timeout: int
    """Milliseconds."""
    check: str | None

    def with_id(self, messages: Sequence[Message | BridgeError]) -> Self:
        """Return the request with the id of its transaction. Raises `HeaderInvalid`."""
        name = self.id
        for message in messages:
            if isinstance(message, Message) and (of_message := message.transaction_id) not in {None, name}:
                if name is not None:
                    raise HeaderInvalid("x-oms-h-transactionid: the messages of one request belong to one transaction.")
                name = of_message
        if name is None:
            name = str(uuid7())
        if not 0 < len(name) <= ID_MAX:
            raise HeaderInvalid(f"x-oms-h-transactionid: the id of a transaction has 1 to {ID_MAX} characters.")
        return self if self.id == name else self._replace(id=name)


class Judged(NamedTuple):
    """A message that may be prepared."""

    message: Message
    applied: Applied
    size: int
    """Bytes that it counts in limits."""
    is_named: bool
    """Whether its client has named it, so that a retry can be recognized."""


class Commit(NamedTuple):
    """Where a commit has stored the messages, by messageId and destination, and when."""

    stored: dict[tuple[str, str | None], Stored]
    wall: int


def repeated_places(messages: Sequence[Message]) -> frozenset[int]:
    """Return the places of messages that repeat an earlier one: the same name and the same body.

    A retry that this bridge does not recognize, because it was restarted or another bridge got the first try, is
    prepared again. The bridge gives each message without a name another messageId, so only retries repeat one.
    """
    first: dict[tuple[Name, bytes], int] = {}
    return frozenset(
        place for place, each in enumerate(messages) if first.setdefault((name_of(each), each.body), place) != place
    )


class CommitCompletion:
    """Completes the messages of a commit, once the backend knows which they are."""

    def __init__(self, producer: Producer, clock: Clock) -> None:
        self._producer = producer
        self._clock = clock
        self.wall = clock.wall()
        """When the messages were completed, ms since 1970."""
        self.messages: Sequence[Message | None] = ()
        """All of them; None: not stored."""
        self.completed: Sequence[Message | None] = ()
        """Those that repeat no earlier one; None: expired."""
        self.repeated: frozenset[int] = frozenset()
        """The places of those that do."""

    async def complete(self, messages: Sequence[Message]) -> Sequence[Message | None]:
        """See `adapters.base.Complete`."""
        self.wall = self._clock.wall()
        if len(messages) > 1 and (repeated := repeated_places(messages)):
            self.repeated = repeated
            first = [each for place, each in enumerate(messages) if place not in repeated]
            self.completed = await self._producer.complete_prepared(first, self.wall)
            in_order = iter(self.completed)
            self.messages = [None if place in repeated else next(in_order) for place in range(len(messages))]
        else:
            self.messages = self.completed = await self._producer.complete_prepared(messages, self.wall)
        return self.messages
