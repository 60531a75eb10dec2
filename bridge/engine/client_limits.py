"""What clients may take: messages a second, bytes of memory, a share for each client. Pure."""

from collections import Counter, OrderedDict
from collections.abc import Hashable
from functools import lru_cache
from heapq import heappop, heappush
from ipaddress import IPv6Address, ip_address
from typing import Final, Generic, TypeVar

from bridge.errors import BackendFull, BridgeError, LimitReached, NotStored, QuotaExceeded, TooManyInFlight
from bridge.url_host import url_host

_FULL: Final = 1000
"""Milliseconds after which an unused bucket is full again, and is forgotten."""
_FORGOTTEN: Final = 2
"""Buckets that one message may forget: more than it adds, so that a message never pays for all of them."""


class Quota:
    """Limits each destination to `rate` messages a second, as a token bucket of one second."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Tokens and the time of the last message, by destination; the one unused for the longest time is first."""

    def take(self, destination: str, mono: int) -> None:
        """Count one message at the time `mono`, ms. Raises `QuotaExceeded` with the seconds to wait."""
        tokens, stamp = self._buckets.get(destination, (float(self._rate), mono))
        tokens = min(float(self._rate), tokens + (mono - stamp) * self._rate / 1000)
        if tokens < 1:
            raise QuotaExceeded(f"{destination} takes at most {self._rate} messages a second.", retry_after=1)
        self._buckets[destination] = (tokens - 1, mono)
        self._buckets.move_to_end(destination)
        for _ in range(_FORGOTTEN):
            oldest, (_, used) = next(iter(self._buckets.items()))
            if mono - used < _FULL:
                break
            del self._buckets[oldest]


_RETRY_AFTER: Final = 5
"""Seconds after which a client may try again."""


class MemoryBudget:
    """Counts bytes that are held for clients. One object for a process."""

    def __init__(self, limit: int = 256 << 20, percent: int = 50, least: int = 32 << 20) -> None:
        """`limit`: bytes for all clients.

        An address may have `percent` of it, and a connection `percent` of that; `least` bytes at least, so that the
        largest request and the largest reply fit.
        """
        self.held = 0
        """Bytes held now."""
        self._limit = limit
        self._of_client = min(limit, max(limit * percent // 100, least))
        self._of_connection = min(limit, max(self._of_client * percent // 100, least))
        self._clients: dict[str, int] = {}
        self._connections: dict[str, int] = {}

    def take(self, peer: str, size: int) -> None:
        """Count `size` bytes more for the connection of `peer`, which is `host:port`.

        Raises `LimitReached` above the share of the connection or of its address, `TooManyInFlight` above the limit
        for all. Then nothing is counted.
        """
        client = client_of(peer)
        held = self.held + size
        of_client = self._clients.get(client, 0) + size
        of_connection = self._connections.get(peer, 0) + size
        if held > self._limit or of_client > self._of_client or of_connection > self._of_connection:
            raise self._refusal(client, of_client, of_connection)
        self.held = held
        self._clients[client] = of_client
        self._connections[peer] = of_connection

    def release(self, peer: str, size: int) -> None:
        """Count `size` bytes less."""
        self.held -= size
        for counts, name in ((self._clients, client_of(peer)), (self._connections, peer)):
            if (rest := counts[name] - size) > 0:
                counts[name] = rest
            else:
                del counts[name]

    def _refusal(self, client: str, of_client: int, of_connection: int) -> BridgeError:
        if of_connection > self._of_connection:
            return LimitReached(
                f"This connection would hold {of_connection} bytes of memory; its share of limits.memory is"
                f" {self._of_connection}.",
                retry_after=_RETRY_AFTER,
            )
        if of_client > self._of_client:
            return LimitReached(
                f"The client address {client} would hold {of_client} bytes of memory; its share of limits.memory is"
                f" {self._of_client}.",
                retry_after=_RETRY_AFTER,
            )
        return TooManyInFlight(
            f"All clients together would hold more than {self._limit} bytes of memory, which is limits.memory.",
            retry_after=_RETRY_AFTER,
        )


INTERNAL: Final = ""
"""The client of what the bridge does on its own account."""

Key = TypeVar("Key", bound=Hashable)

_IPV6_SITE: Final = 64
"""Bits of an IPv6 address that one client is given as a whole."""
_WITHOUT_SHARE: Final = frozenset({INTERNAL, "127.0.0.1", "::/64"})
"""Only the limit for all applies to them. Localhost is every program beside a sidecar, or a proxy for all clients."""
_SLOT: Final = 1000
"""Milliseconds: messages that are due within as much are counted together."""


@lru_cache(maxsize=4096)
def peer_of(host: str, port: int) -> str:
    """Return `host:port` of a connection, as a URL has it: an IPv6 address is in brackets."""
    return f"{url_host(host)}:{port}"


@lru_cache(maxsize=4096)
def client_of(peer: str) -> str:
    """Return the client of a connection from `host:port`: the host, or the first 64 bits of an IPv6 address."""
    host, _, port = peer.rpartition(":")
    host = (host or port).strip("[]")
    if ":" not in host:
        return host
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return f"{IPv6Address(int(address) >> _IPV6_SITE << _IPV6_SITE)}/{_IPV6_SITE}"
    return str(address.ipv4_mapped if isinstance(address, IPv6Address) else address)


@lru_cache(maxsize=4096)
def client_at(host: str) -> str:
    """Return the client of a connection from an address, as `client_of`."""
    return client_of(f"{host}:0")


def share_of(client: str, limit: int, percent: int) -> int:
    """Return how much of a limit for all clients one of them may use: `percent` of it, at least 1."""
    return limit if client in _WITHOUT_SHARE else max(1, limit * percent // 100)


class Share:
    """Counts one kind of thing, for all clients and for each."""

    def __init__(
        self, limit: int, percent: int, things: str, setting: str, full: type[NotStored] = BackendFull
    ) -> None:
        """`limit`: for all clients; one client may have `percent` of it. `things` and `setting` are for errors.

        `full` is the error for a limit that all clients together have reached.
        """
        self._limit = limit
        self._percent = percent
        self._things = things
        self._setting = setting
        self._full = full
        self._used: Counter[str] = Counter()
        self._total = 0

    def check(self, client: str, amount: int = 1) -> None:
        """Raise `LimitReached` if the client may have no more, and `full` if all clients may have no more."""
        if self._total + amount > self._limit:
            raise self._full(
                f"All clients together may have {self._limit} {self._things}, which is {self._setting}.",
                retry_after=_RETRY_AFTER,
            )
        if self._used[client] + amount > (of_one := share_of(client, self._limit, self._percent)):
            raise LimitReached(
                f"The client address {client} may have {of_one} {self._things}, which is limits.client_share of"
                f" {self._setting}.",
                retry_after=_RETRY_AFTER,
            )

    def take(self, client: str) -> None:
        """Count one more. Raises as `check`."""
        self.check(client)
        self.add(client)

    def add(self, client: str, amount: int = 1) -> None:
        """Count more, without a check."""
        self._used[client] += amount
        self._total += amount

    def release(self, client: str, amount: int = 1) -> None:
        """Count less."""
        self._total -= amount
        self._used[client] -= amount
        if not self._used[client]:
            del self._used[client]


class OwnedShare(Generic[Key]):
    """Counts things that have names, each for the client that was the first to use it."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._owners: dict[Key, str] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._owners

    def counted(self) -> tuple[Key, ...]:
        """Return everything that is counted now."""
        return tuple(self._owners)

    def check(self, client: str) -> None:
        """Raise as `Share.check` if the client may have no more."""
        self._share.check(client)

    def take(self, key: Key, client: str) -> bool:
        """Count something for a client; False: it was counted already. Raises as `Share.check`."""
        if key in self._owners:
            return False
        self._share.take(client)
        self._owners[key] = client
        return True

    def release(self, key: Key) -> None:
        """Stop counting something. Harmless if it is not counted."""
        if (client := self._owners.pop(key, None)) is not None:
            self._share.release(client)


class _Waiting:
    """Delayed messages of one client for one destination that are due in the same slot."""

    __slots__ = ("messages", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        """Bytes."""


class DelayedShare:
    """Counts the delayed messages that this bridge has accepted, and their bytes, until they are due."""

    def __init__(self, messages: Share, size: Share) -> None:
        """`size` is in bytes."""
        self._messages = messages
        self._size = size
        self._waiting: dict[tuple[int, str, str], _Waiting] = {}
        """By slot of the due time, client and destination."""
        self._slots: list[tuple[int, str, str]] = []
        """The keys of `_waiting`, also of what was forgotten; a heap."""

    def check(self, client: str, size: int, wall: int) -> None:
        """Raise as `Share.check` if the client may not have a delayed message of `size` bytes more.

        `wall`: now, ms since 1970.
        """
        while self._slots and self._slots[0][0] * _SLOT <= wall:
            slot = heappop(self._slots)
            self._forget(slot)
        self._messages.check(client)
        self._size.check(client, size)

    def add(self, client: str, destination: str, size: int, due: int) -> None:
        """Count a message until it is due, ms since 1970, or up to a second longer."""
        self.hold(client, size)
        slot = (due // _SLOT + 1, client, destination)
        waiting = self._waiting.get(slot)
        if waiting is None:
            waiting = self._waiting[slot] = _Waiting()
            heappush(self._slots, slot)
        waiting.messages += 1
        waiting.size += size

    def hold(self, client: str, size: int) -> None:
        """Count a message that may be stored later, when its due time is known, until `release`."""
        self._messages.add(client)
        self._size.add(client, size)

    def remove(self, client: str, destination: str, size: int, due: int) -> None:
        """Stop counting a message that was not stored; the arguments are those of `add`."""
        waiting = self._waiting.get((due // _SLOT + 1, client, destination))
        if waiting is not None:
            waiting.messages -= 1
            waiting.size -= size
            self.release(client, 1, size)

    def forget(self, destination: str) -> None:
        """Stop counting the messages for a destination: they were purged."""
        for slot in [slot for slot in self._waiting if slot[2] == destination]:
            self._forget(slot)

    def _forget(self, slot: tuple[int, str, str]) -> None:
        if (waiting := self._waiting.pop(slot, None)) is not None:
            self.release(slot[1], waiting.messages, waiting.size)

    def release(self, client: str, messages: int, size: int) -> None:
        """Stop counting messages of `hold`."""
        self._messages.release(client, messages)
        self._size.release(client, size)
