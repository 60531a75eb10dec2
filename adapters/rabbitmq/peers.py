"""What the other bridges are told: what changes at once, and all of it about once a second.

One message to a bridge carries every group that is shared with it, so hundreds of groups cost little more than one.
Each message is mandatory: if it comes back, the broker has no such inbox, and so no such bridge, any more.
"""

import asyncio
from collections.abc import Callable, Collection
from functools import partial

from adapters.base import Stored
from adapters.rabbitmq.outcomes import is_unroutable
from adapters.rabbitmq.roster import State, encode

Send = Callable[[str, bytes], asyncio.Future[Stored]]
"""Sends a message to the inbox of that name."""


class _Peer:
    """Another bridge."""

    __slots__ = ("body", "groups", "heard", "news", "sent")

    def __init__(self) -> None:
        self.groups: set[str] = set()
        """Those that are shared with it."""
        self.news: set[str] = set()
        """Of which it is to be told at the next turn of the loop."""
        self.body: bytes | None = None
        """All that it is told; None: that has changed."""
        self.heard: bytes | None = None
        """What it said last."""
        self.sent: asyncio.Future[Stored] | None = None


class Peers:
    """Who shares groups with this bridge."""

    def __init__(
        self, send: Send, state: Callable[[str], State], vanished: Callable[[str, Collection[str]], None]
    ) -> None:
        """`state` returns what this bridge says of itself in a group; `vanished` is told who is gone from which."""
        self._send = send
        self._state = state
        self._vanished = vanished
        self._peers: dict[str, _Peer] = {}
        self._flushing: asyncio.Handle | None = None

    def repeats(self, name: str, body: bytes) -> bool:
        """Whether a bridge has said just that last time: hundreds of groups cost nothing then."""
        peer = self._peers.get(name)
        return peer is not None and peer.heard == body

    def said(self, name: str, body: bytes) -> None:
        """Note what has been heeded of a bridge."""
        if (peer := self._peers.get(name)) is not None:
            peer.heard = body

    def met(self, name: str, group: str) -> None:
        """Share a group with a bridge."""
        peer = self._peers.setdefault(name, _Peer())
        if group not in peer.groups:
            peer.groups.add(group)
            peer.body = None

    def parted(self, name: str, group: str) -> None:
        """Share a group with a bridge no more."""
        peer = self._peers.get(name)
        if peer is not None and group in peer.groups:
            peer.groups.remove(group)
            peer.news.discard(group)
            peer.body = peer.heard = None
            if not peer.groups:
                del self._peers[name]

    def of(self, group: str) -> list[str]:
        """Return the bridges that a group is shared with."""
        return [name for name, peer in self._peers.items() if group in peer.groups]

    def tell(self, name: str, group: str) -> None:
        """Tell a bridge of a group, with everything else that it is told in this turn of the loop."""
        self._peers[name].news.add(group)
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_soon(self._flush)

    def tell_all(self, group: str) -> None:
        """Tell all that share a group: what there is to say of it may have changed."""
        for name in self.of(group):
            self._peers[name].body = None
            self.tell(name, group)

    def beat(self) -> None:
        """Tell all of everything, but who has not been reached by the last message yet."""
        for name, peer in self._peers.items():
            if peer.sent is None or peer.sent.done():
                if peer.body is None:
                    peer.body = encode({group: self._state(group) for group in sorted(peer.groups)})
                self._tell(name, peer, peer.body)

    def forget(self) -> None:
        """Know nobody any more."""
        self._peers.clear()
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None

    def _flush(self) -> None:
        self._flushing = None
        for name, peer in self._peers.items():
            if peer.news:
                self._tell(name, peer, encode({group: self._state(group) for group in peer.news}))
                peer.news.clear()

    def _tell(self, name: str, peer: _Peer, body: bytes) -> None:
        peer.sent = self._send(name, body)
        peer.sent.add_done_callback(partial(self._look, name, peer))

    def _look(self, name: str, peer: _Peer, sent: asyncio.Future[Stored]) -> None:
        """Trouble in publishing is healed by the next message."""
        if not sent.cancelled() and is_unroutable(sent.exception()) and self._peers.get(name) is peer:
            del self._peers[name]
            self._vanished(name, peer.groups)
