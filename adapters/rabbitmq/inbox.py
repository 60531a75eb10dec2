"""Where the bridges of all groups meet: what this one hears, and when it tells and decides."""

import asyncio
import itertools
import logging
from collections.abc import Collection, Sequence
from typing import Final

from pika import BasicProperties

from adapters.base import Stored
from adapters.rabbitmq.announcements import HELLO, STATE, Announcements
from adapters.rabbitmq.census import Census
from adapters.rabbitmq.link import Link
from adapters.rabbitmq.member import Member
from adapters.rabbitmq.names import Own
from adapters.rabbitmq.options import Options
from adapters.rabbitmq.own_queue import OwnQueue
from adapters.rabbitmq.peers import Peers
from adapters.rabbitmq.publisher import Publisher
from adapters.rabbitmq.record import Outgoing
from adapters.rabbitmq.roster import State, decode, encode
from adapters.rabbitmq.turns import Turns
from bridge.errors import BridgeError

_ROUNDS: Final = 5.0
"""Seconds between two looks at what nobody consumes, while nothing can be said."""
_AGAIN: Final = 1.0
"""Seconds after which one tries again to join."""
_log = logging.getLogger("bridge.rabbitmq")


class Inbox:
    """One per bridge, for all its groups: a queue whose name is the bridge's name among bridges."""

    def __init__(self, options: Options, consuming: Link, publishing: Link, publisher: Publisher) -> None:
        self.consuming = consuming
        self.consumed = Census(consuming).consumed
        self.versions = itertools.count(1)
        self._exchange = Own(options.prefix).members
        self._publishing = publishing
        self._publisher = publisher
        self._members: dict[str, Member] = {}
        self._queue = OwnQueue(
            consuming,
            self._exchange,
            self._members.keys,
            arrived=self._arrived,
            lost=self._lost,
            again=self._again,
        )
        self._peers = Peers(self._to_peer, lambda topic: self._members[topic].state, self._vanished)
        self._announcements = Announcements(self._to_all, self._members, self._queue.renew)
        self._turns = Turns(self._mute, self._beat, self._decide)
        self._rejoining: asyncio.Task[None] | None = None
        self._standing_in: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Be reachable. Raises `BackendUnavailable` or `Refused`; may be called again then."""
        await self._queue.start()
        self._turns.start()

    async def close(self) -> None:
        """Be gone, for all groups at once. Idempotent."""
        self._turns.stop()
        for task in (self._rejoining, self._standing_in):
            if task is not None:
                task.cancel()
                await asyncio.wait((task,))
        self._peers.forget()
        await self._queue.close()

    async def enter(self, member: Member) -> str:
        """Take part in a group; returns the name for it. Raises `BackendUnavailable` or `Refused`."""
        self._part(member.topic)
        self._members[member.topic] = member
        await self._queue.bind(member.topic)
        return await self._queue.ready()

    def leave(self, member: Member) -> list[asyncio.Future[Stored]]:
        """Take part no more; returns what tells the others, to be waited for."""
        topic = member.topic
        if self._members.get(topic) is not member:
            return []
        del self._members[topic]
        self._turns.drop(topic)
        self._announcements.drop(topic)
        self._queue.unbind(topic)
        farewell = encode({topic: State(next(self.versions), None)})
        told = [self._to_peer(peer, farewell) for peer in self._peers.of(topic)]
        self._part(topic)
        return told

    def greet(self, member: Member) -> None:
        """Ask all who are in a group to say so."""
        self._announcements.greet(member.topic)

    def changed(self, member: Member) -> None:
        """Tell the others of a new share."""
        self._peers.tell_all(member.topic)

    def reconsider(self, member: Member) -> None:
        """Let a group decide anew, soon."""
        self._turns.reconsider(member.topic)

    def _mute(self) -> bool:
        return not self._publishing.up or self._publishing.blocked is not None or self._queue.name is None

    def _beat(self) -> None:
        if not self._mute():
            self._peers.beat()
            self._announcements.beat()
        elif self._queue.name is not None and (self._standing_in is None or self._standing_in.done()):
            self._standing_in = asyncio.create_task(self._stand_in())

    async def _stand_in(self) -> None:
        """While nothing can be said, nobody learns that a bridge is gone: look whether there is one for each queue."""
        for member in list(self._members.values()):
            if not self._mute():
                return
            try:
                await member.stand_in()
            except BridgeError as error:
                _log.info("not known who consumes: %s", error, extra={"group": member.topic})
        await asyncio.sleep(_ROUNDS)

    def _arrived(self, properties: BasicProperties, body: bytes) -> None:
        peer = properties.reply_to
        if peer == self._queue.name:
            self._announcements.heard(body)
            return
        if not isinstance(peer, str) or not peer:
            return
        hello = properties.type == HELLO
        if not hello and self._peers.repeats(peer, body):
            return
        strange = {}
        for topic, state in decode(body).items():
            member = self._members.get(topic)
            if member is not None:
                self._heard(member, peer, state, hello=hello)
            elif state.share is not None:
                strange[topic] = State(next(self.versions), None)
        if strange:
            self._to_peer(peer, encode(strange))
        else:
            self._peers.said(peer, body)

    def _heard(self, member: Member, peer: str, state: State, *, hello: bool) -> None:
        new = member.heard(peer, state)
        if not member.knows(peer):
            self._peers.parted(peer, member.topic)
            return
        self._peers.met(peer, member.topic)
        if new:
            # also the others, before anything is decided: one of them may be gone, perhaps the same under its last name
            self._peers.tell_all(member.topic)
        elif hello:
            self._peers.tell(peer, member.topic)

    def _decide(self, topic: str) -> None:
        if topic in self._members:
            self._members[topic].decide()

    def _part(self, topic: str) -> None:
        for peer in self._peers.of(topic):
            self._peers.parted(peer, topic)

    def _vanished(self, peer: str, topics: Collection[str]) -> None:
        for topic in topics:
            self._members[topic].vanished(peer)

    def _lost(self, connection: bool) -> None:
        if self._rejoining is not None:
            self._rejoining.cancel()
        self._peers.forget()
        self._announcements.forget()
        for member in self._members.values():
            member.lost(connection=connection)

    def _again(self) -> None:
        self._rejoining = asyncio.create_task(self._rejoin(list(self._members.values())))

    async def _rejoin(self, members: Sequence[Member]) -> None:
        me = await self._queue.ready()
        await asyncio.gather(*(self._rejoin_one(member, me) for member in members))

    async def _rejoin_one(self, member: Member, me: str) -> None:
        while self._queue.name == me and self._members.get(member.topic) is member:
            try:
                await member.again(me)
            except BridgeError as error:  # such as a queue whose leader is not elected yet
                _log.warning("not in the group again yet: %s", error, extra={"group": member.topic})
                await asyncio.sleep(_AGAIN)
            else:
                return

    def _to_peer(self, peer: str, body: bytes) -> asyncio.Future[Stored]:
        return self._send("", peer, STATE, body)

    def _to_all(self, topic: str, kind: str, body: bytes) -> asyncio.Future[Stored]:
        return self._send(self._exchange, topic, kind, body)

    def _send(self, exchange: str, key: str, kind: str, body: bytes) -> asyncio.Future[Stored]:
        properties = BasicProperties(
            reply_to=self._queue.name, type=kind, content_type="application/json", delivery_mode=1
        )
        sent = self._publisher.send(Outgoing(exchange, key, properties, body))
        sent.add_done_callback(_retrieve)
        return sent


def _retrieve(sent: asyncio.Future[Stored]) -> None:
    if not sent.cancelled():
        sent.exception()
