"""Names of exchanges, queues and streams. Pure.

| name | |
|---|---|
| `<d>` | topic exchange: all messages of the destination |
| `<d>.log` | stream, bound to it with `#`: late groups, replay, the mirror |
| `<d>.parts` | topic exchange bound to it with `#`; what matches none of its bindings is routed to `<d>.rest` |
| `<d>.rest` | fanout exchange: bound to the partition 0 of every group |
| `<d>.<g>.p<i>` | a group's quorum queue of one partition; a dot in `<g>` is `:`, so no two pairs share a name |
| `<d>.<g>.n<i>` | the delivery attempts of that partition: one message, the newest |
| `<d>.<g>.h<i>` | a copy of the log for that partition, if the group was created later; deleted once it is consumed |
| `<d>.<g>.r0` | what a policy's delivery limit has taken out of the group's quorum queues, until it is put back |
| `<d>.<g>.setup` | exclusive: a lock while a bridge sets the group up |
| `<d>.<g>.l<n>` | exclusive: what the exchange has routed since a late group was bound, for a few seconds |
"""

from hashlib import blake2b
from typing import Final, NamedTuple

NAME_MAX: Final = 255
"""Bytes of a name, and of a routing key."""
STREAM_MAX: Final = 160
"""Bytes of a stream's name. RabbitMQ's directory for it has the virtual host before the name and 20 digits behind it; a
file system allows 255 bytes. 3.10.8 accepts a longer name, fails to create the directory again and again, and then
creates no stream for other clients either."""
TOKEN_MAX: Final = 185
"""Bytes of a destination inside a routing key, beside 29 digits and a partition."""
RESERVED: Final = (".log", ".parts", ".rest")
"""Endings that no destination may have: another exchange or the log of a destination has them."""


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
    """Return the queue with the delivery attempts of that partition."""
    return fit(_pair(destination, group), f".n{partition}")


def attempts_of(source: "Source") -> str:
    """Return the queue with the attempts of a partition, from the name of the partition's own queue."""
    return f"{source.queue.removesuffix(f'.p{source.partition}')}.n{source.partition}"


def history(destination: str, group: str, partition: int) -> str:
    """Return the queue with a copy of the log for that partition."""
    return fit(_pair(destination, group), f".h{partition}")


def returned(destination: str, group: str) -> str:
    """Return the queue to which the group's quorum queues dead-letter."""
    return fit(_pair(destination, group), ".r0")


def returned_of(source: "Source") -> str:
    """Return that queue from the name of a partition's own queue."""
    return f"{source.queue.removesuffix(f'.p{source.partition}')}.r0"


def setup(destination: str, group: str) -> str:
    """Return the exclusive queue that is the lock of the group's set-up."""
    return fit(_pair(destination, group), ".setup")


def witness(destination: str, group: str, number: int) -> str:
    """Return the exclusive queue that shows what was routed after a late group was bound."""
    return fit(_pair(destination, group), f".l{number}")


def group(destination: str, group: str) -> str:
    """Return the name of a group among the bridges that serve it."""
    return fit(_pair(destination, group), "")


def token(name: str, purges: int = 0) -> str:
    """Return a destination or a queue inside the routing key of a delayed message, and how often it was purged."""
    return fit(name, f".@{purges}" if purges else "", TOKEN_MAX)


def routing_key(partition: int) -> str:
    """Return the routing key of that partition's messages."""
    return f"p{partition}"


def fit(name: str, suffix: str, most: int = NAME_MAX) -> str:
    """Return name and suffix; a name that is too long for AMQP's short strings is cut and hashed."""
    if len(name) + len(suffix) <= most:
        return name + suffix
    digest = blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{name[: most - len(suffix) - len(digest) - 1]}~{digest}{suffix}"


def _pair(destination: str, group: str) -> str:
    return f"{destination}.{group.replace('.', ':')}"


class Own:
    """The bridge's own exchanges, queues and streams under one prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.catalogue = f"{prefix}book"
        """The stream of the catalogue."""
        self.transactions = f"{prefix}transactions"
        """The stream of transactions."""
        self.bridges = f"{prefix}bridges"
        """The fanout exchange of the bridges' control queues."""
        self.deliver = f"{prefix}deliver"
        """The exchange to which delayed messages are routed when they are due."""
        self.lost = f"{prefix}lost"
        """The exchange, and the queue on it, for due messages whose destination does not exist."""
        self.dropped = f"{prefix}dropped"
        """The queue that drops due messages that were purged."""

    def delay(self, level: int) -> str:
        """Return the exchange, and the queue on it, of one delay level."""
        return f"{self.prefix}delay{level}"

    def relay(self, exchange: str, routing_key: str | None, destination: str = "") -> str:
        """Return the queue that dead-letters due messages to an exchange; None: with the routing key they have.

        Destinations that may share an exchange have separate queues.
        """
        route = exchange if routing_key is None else f"{exchange}\0{routing_key}\0{destination}".removesuffix("\0")
        digest = blake2b(route.encode(), digest_size=8).hexdigest()
        return f"{self.prefix}relay.{digest}"


class Source(NamedTuple):
    """The queues that a group consumes for one partition."""

    partition: int
    queue: str
    history: str | None = None
    """A queue with a copy of the log, which is consumed first."""
    shared: bool = False
    """Whether the bridge does not own the queue: it declares nothing, and other programs may consume it."""
