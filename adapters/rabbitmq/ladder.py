"""How a message waits on RabbitMQ alone: down a ladder of queues in which it dies, one rung for each digit. Pure.

A delay in milliseconds is written as nine digits of base 16. For each digit there is an exchange, and for each value
of it but 0 a queue (a rung) in which messages live for `value * 16**digit` ms; dead, they go to the exchange of the
next lower digit, and from the lowest to `deliver`. All messages in a rung wait equally long, so none is behind one
that waits longer. A digit 0 has no rung: its exchange hands on to the next. The routing key stays the same all the
way: `<9 digits>.<tail>`, where the tail says who gets the message from `deliver`:

| tail | |
|---|---|
| `<destination>.p<i>` | its exchange: one word follows, so `orders` does not catch what is for `orders.eu` |
| `@.<queue>`, or `@.<queue>.p<i>` | that one queue; no destination has an `@` |

A dead letter that no queue takes would be tried again every three minutes, and 32 of them block their rung, which
looks empty meanwhile (measured on 3.10.8). So `deliver` has an alternate exchange, `lost`, with a bounded queue.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from adapters.rabbitmq import names
from adapters.rabbitmq.names import Own

BASE: Final = 16
DIGITS: Final = 9
LONGEST: Final = BASE**DIGITS - 1
"""Milliseconds: 2.18 years."""
STOREYS: Final = (range(4), range(4, DIGITS))
"""Digits whose rungs are made together: those of delays up to 65 s, and those of all others."""
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


class Rung(NamedTuple):
    """A message waits `value * 16**digit` ms in it."""

    digit: int
    value: int

    @property
    def wait(self) -> int:
        """How long a message waits here, ms."""
        return self.value << 4 * self.digit


def first(delay: int) -> int:
    """Return the highest digit of a delay (1 to `LONGEST` ms) that is not zero: where it enters."""
    return (delay.bit_length() - 1) // 4


def routing_key(delay: int, tail: str) -> str:
    """Return what a message that waits so long is published with, to the exchange of its `first` digit."""
    return f"{'.'.join(f'{delay:0{DIGITS}x}')}.{tail}"


def to_destination(destination: str) -> str:
    """Return the tail for the exchange of a destination, before the partition."""
    return names.token(destination)


def to_queue(queue: str) -> str:
    """Return the tail for one queue alone, with or without a partition."""
    return f"@.{names.fit(queue, '', names.TOKEN_MAX)}"


def storey(own: Own, number: int) -> list[Declaration]:
    """Return one of `STOREYS`, in the order in which it is declared; its last queue says that all the others are there.

    The exchanges of all of them come with the first, and so does the queue of the lost, as its last.
    """
    found: list[Declaration] = []
    if number == 0:
        found += [Exchange(own.lost), Exchange(own.deliver, {"alternate-exchange": own.lost})]
        for digit in range(DIGITS):
            found.append(Exchange(own.level(digit)))
            found.append(Binding(own.level(digit), _at(digit, 0), _next(own, digit), to_exchange=True))
    for digit in STOREYS[number]:
        for value in range(1, BASE):
            found += _rung(own, Rung(digit, value))
    if number == 0:
        bounds: Arguments = {"x-max-length": LOST_MESSAGES, "x-max-length-bytes": LOST_BYTES}
        found.append(Queue(own.lost, {"x-queue-type": "quorum", "x-overflow": "drop-head", **bounds}))
        # of what comes there only the delayed: for the others it is as if it were not there, and they are returned
        found.append(Binding(own.lost, f"{'*.' * (DIGITS + 1)}*.#", own.lost, to_exchange=False))
    return found


def _rung(own: Own, place: Rung) -> list[Declaration]:
    name = own.rung(place.digit, place.value)
    return [
        Queue(name, _dying(_next(own, place.digit), place.wait)),
        Binding(own.level(place.digit), _at(place.digit, place.value), name, to_exchange=False),
    ]


def exit_to_exchange(own: Own, destination: str) -> Binding:
    """Return what leads from `deliver` to the exchange of a destination."""
    return Binding(own.deliver, f"{'*.' * DIGITS}{to_destination(destination)}.*", destination, to_exchange=True)


def exit_to_queue(own: Own, queue: str, *, partitioned: bool = False) -> Binding:
    """Return what leads from `deliver` to one queue."""
    return Binding(own.deliver, f"{'*.' * DIGITS}{to_queue(queue)}{'.*' * partitioned}", queue, to_exchange=False)


def turn(own: Own, exchange: str, routing_key: str | None = None) -> Queue:
    """Return a queue that messages leave at once for an exchange, with a routing key of its own if there is one.

    What that exchange has no queue for stays here, is tried again every three minutes, and blocks nobody else.
    """
    arguments = _dying(exchange, 0)
    if routing_key is not None:
        arguments["x-dead-letter-routing-key"] = routing_key
    return Queue(own.turn(exchange, routing_key), arguments)


def _dying(exchange: str, wait: int) -> dict[str, str | int]:
    """Return the arguments of a queue whose messages go on to `exchange` after `wait` ms.

    All three of them belong together: without one RabbitMQ silently hands on at most once.
    """
    return {
        "x-queue-type": "quorum",
        "x-message-ttl": wait,
        "x-dead-letter-exchange": exchange,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


def _next(own: Own, digit: int) -> str:
    return own.level(digit - 1) if digit else own.deliver


def _at(digit: int, value: int) -> str:
    """Return the pattern of the routing keys that have this value in this digit."""
    return f"{'*.' * (DIGITS - 1 - digit)}{value:x}.#"
