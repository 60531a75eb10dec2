"""Delay levels: how a message waits in RabbitMQ alone, in one queue for each bit of its delay. Pure.

A delay is counted in units of 100 ms and written as 29 binary digits. For each digit there is a level: an exchange, and
a queue of the same name in which messages live for `2**level` units. Dead, they go to the exchange of the next lower
level, and from the lowest to `deliver`. All messages of a queue wait equally long, so none is behind one that waits
longer. A digit 0 has the exchange hand on to the next. The routing key stays the same: `<29 digits>.<target>`,
where the target says who gets the message from `deliver`:

| target | |
|---|---|
| `<destination>.p<i>` | its exchange: one word follows, so `orders` does not catch what is for `orders.eu` |
| `@.<queue>`, or `@.<queue>.p<i>` | that one queue; no destination has an `@` |

After a purge another word follows the destination or the queue: `orders.@1.p0`. See `DelayPurge`.

A dead letter that no queue takes would be tried again every three minutes, and 32 of them block their level, which
looks empty meanwhile (measured on 3.10.8). So `deliver` has an alternate exchange, `lost`, with a bounded queue.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from adapters.rabbitmq.topology import names
from adapters.rabbitmq.topology.names import Own

UNIT: Final = 100
"""Milliseconds of the shortest level. What is left of a delay the engine waits for."""
LEVELS: Final = 29
LONGEST: Final = UNIT * (2**LEVELS - 1)
"""Milliseconds: 621 days."""
LOST_MESSAGES: Final = 100_000
LOST_BYTES: Final = 256 << 20
"""What the queue of the lost holds before its oldest go."""

Arguments = Mapping[str, str | int]


class Exchange(NamedTuple):
    """A durable topic exchange."""

    name: str
    arguments: Arguments = MappingProxyType({})


class Queue(NamedTuple):
    """A quorum queue."""

    name: str
    arguments: Arguments


class Binding(NamedTuple):
    """From an exchange to a queue, or to another exchange."""

    source: str
    key: str
    target: str
    to_exchange: bool

    @property
    def name(self) -> str:
        """What it is about, for a person."""
        return self.target


Declaration = Exchange | Queue | Binding


def entry(own: Own, wait: int) -> str:
    """Return the exchange at which a message enters that waits so many ms: of the highest digit that is not 0."""
    units = wait // UNIT
    return own.delay(units.bit_length() - 1) if units else own.deliver


def routing_key(wait: int, target: str) -> str:
    """Return what a message that waits so many ms (0 to `LONGEST`) is published with."""
    return f"{'.'.join(f'{wait // UNIT:0{LEVELS}b}')}.{target}"


def to_destination(destination: str, purges: int = 0) -> str:
    """Return the target for the exchange of a destination, before the partition."""
    return names.token(destination, purges)


def to_queue(queue: str, purges: int = 0) -> str:
    """Return the target for one queue alone, with or without a partition."""
    return f"@.{names.token(queue, purges)}"


def levels(own: Own) -> list[Declaration]:
    """Return all declarations in their order: if the queue at the end is there, so is everything else."""
    found: list[Declaration] = [Exchange(own.lost), Exchange(own.deliver, {"alternate-exchange": own.lost})]
    for level in range(LEVELS):
        name, below, digits = own.delay(level), own.delay(level - 1) if level else own.deliver, LEVELS - 1 - level
        found += (
            Exchange(name),
            Queue(name, _dying(below, UNIT << level)),
            Binding(name, f"{'*.' * digits}1.#", name, to_exchange=False),
            Binding(name, f"{'*.' * digits}0.#", below, to_exchange=True),
        )
    bounds: Arguments = {"x-max-length": LOST_MESSAGES, "x-max-length-bytes": LOST_BYTES}
    # of what comes there only the delayed: for the others it is as if it were not there, and they are returned
    found.append(Queue(own.lost, {"x-queue-type": "quorum", "x-overflow": "drop-head", **bounds}))
    found.append(Binding(own.lost, f"{'*.' * (LEVELS + 1)}*.#", own.lost, to_exchange=False))
    return found


def from_deliver_to_exchange(own: Own, destination: str, purges: int = 0) -> Binding:
    """Return what leads from `deliver` to the exchange of a destination."""
    key = f"{'*.' * LEVELS}{to_destination(destination, purges)}.*"
    return Binding(own.deliver, key, destination, to_exchange=True)


def from_deliver_to_queue(own: Own, queue: str, purges: int = 0, *, partitioned: bool = False) -> Binding:
    """Return what leads from `deliver` to one queue."""
    key = f"{'*.' * LEVELS}{to_queue(queue, purges)}{'.*' * partitioned}"
    return Binding(own.deliver, key, queue, to_exchange=False)


def dropped(own: Own) -> Queue:
    """Return the queue for purged messages: it removes each at once."""
    return Queue(own.dropped, {"x-queue-type": "quorum", "x-message-ttl": 0})


def relay(own: Own, exchange: str, routing_key: str | None = None, destination: str = "") -> Queue:
    """Return a queue that messages leave at once for an exchange, with `routing_key` if there is one.

    What that exchange has no queue for stays here, is tried again every three minutes, and blocks no other message.
    """
    arguments = _dying(exchange, 0)
    if routing_key is not None:
        arguments["x-dead-letter-routing-key"] = routing_key
    return Queue(own.relay(exchange, routing_key, destination), arguments)


def _dying(exchange: str, wait: int) -> dict[str, str | int]:
    """Return the arguments of a queue whose messages go on to `exchange` after `wait` ms.

    Without one of quorum, at-least-once and reject-publish RabbitMQ silently hands on at most once.
    """
    return {
        "x-queue-type": "quorum",
        "x-message-ttl": wait,
        "x-dead-letter-exchange": exchange,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


APART: Final = 20
"""Milliseconds by which a path through the levels is late: 4 to 17 were measured on 3.10.8 on an idle machine."""
LATE: Final = 1000
"""Milliseconds that a message waits longer for the sake of order, and no more. It takes a burst of one key for one
moment: such messages arrive as quickly as they were sent."""
_KEYS: Final = 4096

KeyQueue = tuple[str, str]
"""A destination's partition, and a key."""


class _Sent(NamedTuple):
    due: int
    wait: int
    arrives: int


class Pace:
    """How long messages wait in the levels so that those of one key keep their order, for some thousands of keys.

    Each level takes some milliseconds. So a message leaves the levels up to 120 ms before it is due, and the engine
    holds it until then. Messages that wait equally long stay behind one another: they are in the same queues. Two that
    wait 900 and 1000 ms are in different ones, and arrive as chance has it. So a message that would arrive close to the
    one before it, of its key, waits longer: as long as that one did, or until some time after it.
    """

    def __init__(self) -> None:
        self._last: dict[KeyQueue, _Sent] = {}

    def wait(self, key_queue: KeyQueue | None, due: int, now: int) -> int:
        """Return how many ms, a multiple of `UNIT`, a message waits that the engine holds until `due`.

        `key_queue` is None if it has no key.
        """
        needed = min(max(due - now - APART, 0) // UNIT * UNIT, LONGEST)
        if key_queue is None:
            return needed
        last = self._last.get(key_queue)
        wait = needed
        if last is not None and due >= last.due and now + needed < last.arrives + APART:
            behind = _units(last.arrives + APART - now)
            longer = last.wait if needed <= last.wait < behind else behind
            if longer <= needed + LATE:
                wait = longer
        elif last is None and len(self._last) >= _KEYS:
            self._last.clear()
        self._last[key_queue] = _Sent(due, wait, now + wait)
        return wait


def not_before(due: int, now: int) -> int:
    """Return how many ms, a multiple of `UNIT`, a message waits that must not arrive before `due`."""
    # one more: the broker counts in whole ms, and so may be ahead of us by a part of one
    return min(_units(due - now + 1), LONGEST)


def _units(wait: int) -> int:
    return -(-max(wait, 0) // UNIT) * UNIT
