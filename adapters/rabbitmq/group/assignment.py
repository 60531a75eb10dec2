"""Which bridges serve a group, and which of its partitions each consumes. Pure.

All bridges with the same list of members compute the same assignment without negotiation. While two have different
lists, both may consume a partition: RabbitMQ delivers to one of them (single active consumer).
"""

import json
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple


class Peer(NamedTuple):
    """Another bridge, by its last announcement."""

    queue: str
    """The name of its control queue: a new one after each time that the queue was lost."""
    announcement: bytes
    groups: frozenset[str]


class Peers:
    """The other bridges of a prefix, by identity."""

    def __init__(self) -> None:
        self._peers: dict[str, Peer] = {}

    def announced(self, queue: str, announcement: bytes) -> tuple[bool, frozenset[str]]:
        """Store the announcement of a bridge.

        Returns whether its control queue is new, so that it has missed earlier announcements, and the groups that it
        has joined or left.
        """
        known = self._peers.get(identity_of(queue))
        new = known is None or known.queue != queue
        if known is not None and not new and known.announcement == announcement:
            return False, frozenset()
        groups = decode(announcement)
        self._peers[identity_of(queue)] = Peer(queue, announcement, groups)
        return new, groups if known is None else groups ^ known.groups

    def remove(self, queue: str) -> frozenset[str]:
        """Remove the bridge with this control queue, and return its groups."""
        known = self._peers.get(identity_of(queue))
        if known is None or known.queue != queue:
            return frozenset()
        del self._peers[identity_of(queue)]
        return known.groups

    def queues(self) -> list[str]:
        """Return the control queues of all bridges."""
        return [peer.queue for peer in self._peers.values()]

    def serving(self, group: str) -> list[str]:
        """Return the identities of the bridges that serve a group."""
        return [identity for identity, peer in self._peers.items() if group in peer.groups]


def share(group: str, me: str, others: Iterable[str], partitions: int) -> frozenset[int]:
    """Return the partitions of a group that `me` consumes: no bridge has more than one more than another.

    The members are sorted by a hash with the group, so that the first partitions of all groups are spread.
    """
    members = sorted({me, *others}, key=lambda member: blake2b(f"{group}\0{member}".encode(), digest_size=8).digest())
    return frozenset(range(members.index(me), partitions, len(members)))


def identity_of(queue: str) -> str:
    """Return the identity of a bridge from its control queue, `<identity>.<number>`, which may be replaced."""
    return queue.rpartition(".")[0]


def encode(groups: Iterable[str]) -> bytes:
    """Return the announcement of a bridge: the groups that it serves, as JSON."""
    return json.dumps(sorted(groups), separators=(",", ":")).encode()


def decode(announcement: bytes) -> frozenset[str]:
    """Return the groups of an announcement; an invalid one has none."""
    try:
        groups = json.loads(announcement)
    except (ValueError, RecursionError):
        return frozenset()
    return frozenset(group for group in groups if isinstance(group, str)) if isinstance(groups, list) else frozenset()
