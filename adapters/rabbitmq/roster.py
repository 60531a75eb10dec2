"""Who is in a group, what each of them takes for its own, and what of it is mine. Pure.

Every member tells the others its share. Each computes from what it has heard what is whose, by the same rules, and so
all come to the same: each partition is one member's, and nobody has more than one more than another. Where they have
not heard the same for a moment, two may consume the queue of one partition; the broker lets one of them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class State(NamedTuple):
    """What a member says of itself in one group."""

    version: int
    """Of two from the same member the one with the higher number is true: messages may overtake each other."""
    share: frozenset[int] | None
    """The partitions that it takes for its own; None: it is not in the group."""


class Roster:
    """One group as one member knows it."""

    def __init__(self, me: str, partitions: int, versions: Iterator[int], share: frozenset[int] = frozenset()) -> None:
        """`versions` are this member's for as long as it goes by that name."""
        self.me = me
        self.partitions = partitions
        self.others: dict[str, State] = {}
        self._versions = versions
        self.state = State(next(versions), share)

    @property
    def share(self) -> frozenset[int]:
        """The partitions that are mine."""
        return self.state.share or frozenset()

    def heard(self, member: str, state: State) -> bool:
        """Note what a member says. Returns whether it was unknown until now: it does not know of me then."""
        known = self.others.get(member)
        if known is not None and known.version > state.version:
            return False
        if state.share is None:
            self.others.pop(member, None)
            return False
        self.others[member] = state
        return known is None

    def vanished(self, member: str) -> None:
        """Note that the broker knows a member no more."""
        self.others.pop(member, None)

    def decide(self) -> bool:
        """Compute my share anew. Returns whether it has changed: the others are to be told then."""
        told = {member: state.share or frozenset() for member, state in self.others.items()}
        return self.take(shares({**told, self.me: self.share}, self.partitions)[self.me])

    def take(self, share: frozenset[int]) -> bool:
        """Have another share. Returns whether it has changed."""
        changed = share != self.share
        if changed:
            self.state = State(next(self._versions), share)
        return changed


def shares(claims: Mapping[str, frozenset[int]], partitions: int) -> dict[str, frozenset[int]]:
    """Return what is whose; whoever claims no more than is due to it, alone, keeps that."""
    held: dict[str, set[int]] = {member: set() for member in sorted(claims)}
    claimants: list[list[str]] = [[] for _ in range(partitions)]
    for member in held:
        for partition in claims[member]:
            if partition < partitions:
                claimants[partition].append(member)
    # first what is nobody else's, then what two claim: a newcomer may claim already what another has not let go yet,
    # and the newcomer is the one that has less
    for contested in (False, True):
        for partition, members in enumerate(claimants):
            if members and (len(members) > 1) is contested:
                held[min(members, key=lambda member: len(held[member]))].add(partition)
    quotas = _quotas(held, partitions)
    free = {partition for partition, members in enumerate(claimants) if not members}
    for member, own in held.items():
        excess = sorted(own)[quotas[member] :]
        own.difference_update(excess)
        free.update(excess)
    for partition in sorted(free):
        held[max(held, key=lambda member: quotas[member] - len(held[member]))].add(partition)
    return {member: frozenset(own) for member, own in held.items()}


def encode(states: Mapping[str, State]) -> bytes:
    """Return what a member says of itself, by group, as JSON that people can read."""
    told = {
        group: [state.version, None if state.share is None else sorted(state.share)] for group, state in states.items()
    }
    return json.dumps(told, separators=(",", ":")).encode()


def decode(body: bytes) -> dict[str, State]:
    """Read what `encode` wrote; of what nobody here has written, nothing."""
    try:
        return {group: _state(*told) for group, told in json.loads(body).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _quotas(held: Mapping[str, set[int]], partitions: int) -> dict[str, int]:
    """Return how many are due to each: where they cannot be alike, those that have most have one more."""
    least, more = divmod(partitions, len(held))
    ranked = sorted(held, key=lambda member: -len(held[member]))
    return {member: least + (place < more) for place, member in enumerate(ranked)}


def _state(version: object, share: object) -> State:
    if type(version) is not int or (share is not None and not isinstance(share, list)):
        raise TypeError
    if share is not None and not all(type(partition) is int and partition >= 0 for partition in share):
        raise TypeError
    return State(version, None if share is None else frozenset(share))
