"""What is said to all bridges of a group, known or not."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from adapters.base import Stored
from adapters.rabbitmq.member import Member
from adapters.rabbitmq.outcomes import is_gone, is_unroutable
from adapters.rabbitmq.roster import decode, encode

HELLO: Final = "hello"
STATE: Final = "state"
"""Types of messages. A hello is answered by everybody, a state by those to whom its sender is new."""
_ROUND: Final = 30
"""Beats within which every group is announced once more: somebody may not have heard the hello."""
_ECHO: Final = 10.0
"""Seconds in which what is said to all comes to this bridge itself; it takes a few milliseconds."""

Send = Callable[[str, str, bytes], asyncio.Future[Stored]]
"""Sends a message of that type to all of the group of that name."""


class Announcements:
    """Each comes to this bridge as well: so it finds out if somebody has deleted what it is reached by."""

    def __init__(self, send: Send, members: Mapping[str, Member], deaf: Callable[[], None]) -> None:
        """`deaf` is called when nothing comes any more."""
        self._send = send
        self._members = members
        self._deaf = deaf
        self._ungreeted: set[str] = set()
        """Groups that have not been told that this bridge is there."""
        self._echoes: dict[str, float | None] = {}
        """When what was said to a group was taken by the broker (monotonic); None: it is not known to be."""
        self._place = 0

    def greet(self, group: str) -> None:
        """Ask all who are in a group to say so; what cannot be sent is sent later."""
        self._ungreeted.discard(group)
        self._announce(group, HELLO)

    def beat(self) -> None:
        """Say what is to be said about once a second."""
        late = asyncio.get_running_loop().time() - _ECHO
        if any(taken is not None and taken < late for taken in self._echoes.values()):
            self._deaf()
            return
        for group in list(self._ungreeted):
            self.greet(group)
        groups = list(self._members)
        for _ in range(-(-len(groups) // _ROUND)):
            self._place = (self._place + 1) % len(groups)
            self._announce(groups[self._place], STATE)

    def heard(self, body: bytes) -> None:
        """Note what has come back to this bridge."""
        for group in decode(body):
            self._echoes.pop(group, None)

    def drop(self, group: str) -> None:
        """Say nothing more to a group."""
        self._ungreeted.discard(group)
        self._echoes.pop(group, None)

    def forget(self) -> None:
        """Expect nothing: this bridge goes by another name from now on."""
        self._echoes = {}

    def _announce(self, group: str, kind: str) -> None:
        member, echoes = self._members[group], self._echoes
        echoes.setdefault(group, None)
        sent = self._send(group, kind, encode({group: member.state}))
        sent.add_done_callback(partial(self._look, member, kind, echoes))

    def _look(self, member: Member, kind: str, echoes: dict[str, float | None], sent: asyncio.Future[Stored]) -> None:
        if sent.cancelled() or self._members.get(member.topic) is not member or echoes is not self._echoes:
            return
        error = sent.exception()
        if error is None:
            if member.topic in echoes:
                echoes[member.topic] = asyncio.get_running_loop().time()
            return
        echoes.pop(member.topic, None)
        if is_unroutable(error) or is_gone(error):
            self._deaf()
        elif kind == HELLO:
            self._ungreeted.add(member.topic)
