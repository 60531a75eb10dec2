"""The part of this bridge in one group: which partitions are its to consume."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from adapters.rabbitmq.inbox import Inbox
from adapters.rabbitmq.roster import Roster, State
from bridge.errors import BackendUnavailable

_ANSWERS: Final = 2.0
"""Seconds that those who hold something have to say so before this bridge takes a share: they may hang."""
_LOOK: Final = 0.3
"""Seconds after which it looks once more who holds something."""
_SETTLE: Final = 0.05
"""Seconds in which those answer who hold nothing yet: bridges that have come at the same time."""
_FAREWELL: Final = 1.0
"""Seconds that leaving waits for the others to be told: they find out by themselves, if later."""

Changed = Callable[[frozenset[int]], None]


class Membership:
    """Tells the others of the group what this bridge takes for its own, and computes it from what they tell."""

    def __init__(self, inbox: Inbox, topic: str, queues: Sequence[str], changed: Changed) -> None:
        """`queues` of the partitions. `changed` is told each share after the first.

        After a lost connection it is told the share once more, for all that was consumed is lost with it.
        """
        self.topic = topic
        self._inbox = inbox
        self._queues = queues
        self._changed = changed
        self._roster: Roster | None = None
        """None: this bridge is not in the group, or not yet again."""
        self._joined = False
        self._settled = False
        """Whether a share has been taken since this bridge came."""
        self._kept: frozenset[int] = frozenset()
        """What is consumed still from before the name was lost."""
        self._told: set[int] = set()
        """Partitions that somebody has said to be his since this bridge came."""
        self._asked: frozenset[int] = frozenset()
        """Partitions that somebody consumes."""
        self._answered = asyncio.Event()

    async def join(self) -> frozenset[int]:
        """Come to the group, and return this bridge's share. Raises `BackendUnavailable` or `Refused`.

        Nobody is waited for where nobody consumes. A share may be consumed before its last holder has let go of it.
        """
        try:
            await self._come(await self._inbox.enter(self))
        except BaseException:
            self._inbox.leave(self)
            raise
        self._joined = True
        return self.share

    async def leave(self) -> None:
        """Leave the group, best before letting go of what is held: the others stand ready then."""
        told = self._inbox.leave(self)
        self._roster = None
        if told:
            await asyncio.wait(told, timeout=_FAREWELL)

    @property
    def share(self) -> frozenset[int]:
        """The partitions to consume."""
        return frozenset() if self._roster is None else self._roster.share

    # What the inbox tells:

    @property
    def state(self) -> State:
        """What this bridge says of itself."""
        return State(0, frozenset()) if self._roster is None else self._roster.state

    def knows(self, peer: str) -> bool:
        """Whether a bridge is in the group."""
        return self._roster is not None and peer in self._roster.others

    def heard(self, peer: str, state: State) -> bool:
        """Note what a bridge says; returns whether that one was unknown until now."""
        if self._roster is None:
            return False
        before = self._roster.others.get(peer)
        new = self._roster.heard(peer, state)
        if self._roster.others.get(peer) != before:
            self._inbox.reconsider(self)
        self._told |= state.share or frozenset()
        if self._asked <= self._told:
            self._answered.set()
        return new

    def vanished(self, peer: str) -> None:
        """Note that the broker knows a bridge no more."""
        if self._roster is not None:
            self._roster.vanished(peer)
            self._inbox.reconsider(self)

    def decide(self) -> None:
        """Compute the share anew, and tell whom it concerns."""
        if self._settled and self._roster is not None and self._roster.decide():
            self._tell()

    def lost(self, *, connection: bool) -> None:
        """Note that this bridge's name is gone, or with the connection all that was consumed."""
        self._kept = frozenset() if connection else self._kept | self.share
        self._roster = None
        self._settled = False
        self._answered.set()

    async def again(self, me: str) -> None:
        """Come again, under another name. Raises `BackendUnavailable`."""
        if self._joined:
            await self._come(me)
            self._changed(self.share)

    async def stand_in(self) -> None:
        """Take as well what nobody consumes any more. Raises `BackendUnavailable` or `Refused`."""
        roster = self._roster
        if roster is None or not self._settled or not roster.others:
            return
        consumed = await self._inbox.consumed(self._queues)
        if roster is self._roster and roster.take(roster.share | set(range(len(self._queues))) - consumed):
            self._tell()

    def _tell(self) -> None:
        self._inbox.changed(self)
        self._changed(self.share)

    async def _come(self, me: str) -> None:
        """Take a share: at once if nobody consumes anything, else once they have said what, or after a while."""
        inbox = self._inbox
        roster = self._roster = Roster(me, len(self._queues), inbox.versions, self._kept)
        self._told, self._asked = set(self._kept), frozenset()
        inbox.greet(self)
        self._asked = await inbox.consumed(self._queues)
        if not self._asked <= self._told:
            with suppress(TimeoutError):
                async with asyncio.timeout(_ANSWERS):
                    await self._hear()
            await asyncio.sleep(_SETTLE)
        if self._roster is not roster:
            raise BackendUnavailable(inbox.consuming.failure.detail)
        if roster.decide():
            inbox.changed(self)
        self._kept = frozenset()
        self._settled = True

    async def _hear(self) -> None:
        """Wait until all that is consumed is somebody's who has said so."""
        while not self._asked <= self._told:
            self._answered.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._answered.wait()
                    return
            # those of a bridge that has just died, or of this one before its connection was lost, end by themselves
            self._asked = await self._inbox.consumed(self._queues)
