"""Completes the messages of a commit; those that a retry prepared twice are stored once."""

from collections.abc import Sequence

from bridge.engine.clock import Clock
from bridge.engine.dedup import Name, name_of
from bridge.engine.producer import Producer
from bridge.message import Message


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
