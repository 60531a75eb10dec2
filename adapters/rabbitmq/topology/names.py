"""Names of exchanges, queues and streams. Pure.

| name | |
|---|---|
| `<d>` | topic exchange: everything that is published to the destination |
| `<d>.log` | stream, bound to it with `#`: late groups, replay, the mirror |
| `<d>.parts` | topic exchange bound to it with `#`; what none of its bindings takes goes on to `<d>.rest` |
| `<d>.rest` | fanout exchange: bound to the partition 0 of every group |
| `<d>.<g>.p<i>` | a group's quorum queue of one partition; a dot in `<g>` is `:`, so no two pairs share a name |
| `<d>.<g>.n<i>` | what is known of that partition's deliveries: one message, the newest |
| `<d>.<g>.h<i>` | what the log held of that partition when the group came late; gone once it is read |
| `<d>.<g>.setup` | exclusive: there while a bridge sets the group up |
"""

from hashlib import blake2b
from typing import Final, NamedTuple

NAME_MAX: Final = 255
"""Bytes of a name, and of a routing key."""
STREAM_MAX: Final = 160
"""Bytes of a stream's name. RabbitMQ makes a folder for it, called so with the virtual host before and 20 digits after
it, and a file system has room for 255. 3.10.8 takes a longer name, fails to make the folder again and again, and then
makes no stream for other clients either: one client with a long name would have stopped the broker."""
TOKEN_MAX: Final = 185
"""Bytes of a destination inside a routing key, beside 29 digits and a partition."""
RESERVED: Final = (".log", ".parts", ".rest")
"""Endings that no destination may have: an exchange beside it is called so."""


def log(destination: str) -> str:
    """Return the stream of a destination."""
    return fit(destination, ".log", STREAM_MAX)


def parts(destination: str) -> str:
    """Return the exchange that routes by partition."""
    return fit(destination, ".parts")


def rest(destination: str) -> str:
    """Return the exchange for routing keys that are no partition's."""
    return fit(destination, ".rest")


def queue(destination: str, group: str, partition: int) -> str:
    """Return the queue of one partition of one group."""
    return fit(_pair(destination, group), f".p{partition}")


def attempts(destination: str, group: str, partition: int) -> str:
    """Return the queue that holds what is known of that partition's deliveries."""
    return fit(_pair(destination, group), f".n{partition}")


def attempts_of(source: "Source") -> str:
    """Return the queue with the attempts of a partition, from the name of the partition's own queue."""
    return f"{source.queue.removesuffix(f'.p{source.partition}')}.n{source.partition}"


def history(destination: str, group: str, partition: int) -> str:
    """Return the queue with what the log held of that partition when the group came late."""
    return fit(_pair(destination, group), f".h{partition}")


def setup(destination: str, group: str) -> str:
    """Return the queue that only the bridge has which sets the group up."""
    return fit(_pair(destination, group), ".setup")


def group(destination: str, group: str) -> str:
    """Return the one name of a group: where its bridges meet, and what the catalogue calls it."""
    return fit(_pair(destination, group), "")


def token(name: str, purges: int = 0) -> str:
    """Return a destination or a queue inside the routing key of a delayed message, and how often it was purged."""
    return fit(name, f".@{purges}" if purges else "", TOKEN_MAX)


def routing_key(partition: int) -> str:
    """Return what a message of that partition is published with."""
    return f"p{partition}"


def fit(name: str, suffix: str, most: int = NAME_MAX) -> str:
    """Return both together, the name cut and hashed where they would be longer than AMQP's short strings."""
    if len(name) + len(suffix) <= most:
        return name + suffix
    digest = blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{name[: most - len(suffix) - len(digest) - 1]}~{digest}{suffix}"


def _pair(destination: str, group: str) -> str:
    return f"{destination}.{group.replace('.', ':')}"


class Own(NamedTuple):
    """The bridge's own exchanges, queues and streams under one prefix."""

    prefix: str

    @property
    def catalogue(self) -> str:
        """The stream of the catalogue of destinations and of the bridges' notes."""
        return f"{self.prefix}book"

    @property
    def transactions(self) -> str:
        """The stream of transactions."""
        return f"{self.prefix}transactions"

    @property
    def bridges(self) -> str:
        """The fanout exchange of the bridges' control queues."""
        return f"{self.prefix}bridges"

    @property
    def deliver(self) -> str:
        """The exchange where a delayed message arrives when it is due."""
        return f"{self.prefix}deliver"

    @property
    def lost(self) -> str:
        """The exchange, and the queue on it, for due messages whose destination is gone."""
        return f"{self.prefix}lost"

    @property
    def dropped(self) -> str:
        """The queue that keeps nothing: due messages that were purged."""
        return f"{self.prefix}dropped"

    def delay(self, level: int) -> str:
        """Return the exchange, and the queue on it, of one delay level."""
        return f"{self.prefix}delay{level}"

    def relay(self, exchange: str, routing_key: str | None, destination: str = "") -> str:
        """Return the queue from which due messages go on to an exchange; None: with the routing key they have.

        If several destinations may have the same exchange, each has a queue for itself.
        """
        way = exchange if routing_key is None else f"{exchange}\0{routing_key}\0{destination}".removesuffix("\0")
        digest = blake2b(way.encode(), digest_size=8).hexdigest()
        return f"{self.prefix}relay.{digest}"


class Source(NamedTuple):
    """Where a group reads one partition."""

    partition: int
    queue: str
    history: str | None = None
    """A queue with what the destination's log held when the group came late: it is read first."""
    shared: bool = False
    """A queue that existed already and may have other consumers: the bridge changes nothing about it."""
