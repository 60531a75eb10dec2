"""Delay levels: how a message waits in RabbitMQ alone, in one queue for each bit of its delay. Pure.

A delay is counted in units of 100 ms and written as 29 binary digits. Each digit has a level: an exchange, and a queue
of the same name with a time to live of `2**level` units. Expired messages are dead-lettered to the exchange of the
next lower level, and from the lowest level to `deliver`. All messages of a queue wait equally long, so none is blocked
by one that waits longer. For a digit 0, the exchange routes to the exchange of the next level. The routing key stays
the same: `<29 digits>.<target>`, where `deliver` routes by the target:

| target | routed to |
|---|---|
| `<destination>.p<i>` | its exchange. One word follows the name, so `orders` does not match `orders.eu` |
| `@.<queue>`, or `@.<queue>.p<i>` | that queue; no destination has an `@` |

After a purge another word follows the destination or the queue: `orders.@1.p0`. See `Deletion`.

RabbitMQ publishes an unroutable dead letter again every three minutes, and 32 of them block their level, which looks
empty meanwhile (measured on 3.10.8). So `deliver` has an alternate exchange, `lost`, with a bounded queue.
"""

from typing import Any, Final, NamedTuple

from adapters.rabbitmq.topology import names
from adapters.rabbitmq.topology.declarations import Request, bind_exchange, bind_queue, exchange, queue
from adapters.rabbitmq.topology.names import Own

UNIT: Final = 100
"""Milliseconds of the shortest level. The engine waits for the rest of a delay."""
LEVELS: Final = 29
LONGEST: Final = UNIT * (2**LEVELS - 1)
"""Milliseconds: 621 days."""
LOST_MESSAGES: Final = 100_000
LOST_BYTES: Final = 256 << 20
"""Limits of the queue `lost`, which then drops its oldest messages."""


def entry(own: Own, wait: int) -> str:
    """Return the exchange to which a message is published that waits so many ms: of the highest digit that is not 0."""
    units = wait // UNIT
    return own.delay(units.bit_length() - 1) if units else own.deliver


def routing_key(wait: int, target: str) -> str:
    """Return the routing key of a message that waits so many ms (0 to `LONGEST`)."""
    return f"{'.'.join(f'{wait // UNIT:0{LEVELS}b}')}.{target}"


def to_queue(queue: str, purges: int = 0) -> str:
    """Return the target of one queue, with or without a partition."""
    return f"@.{names.token(queue, purges)}"


def levels(own: Own) -> list[Request]:
    """Return all declarations in order. The last queue exists only if everything before it does."""
    found = [exchange(own.lost, "topic"), exchange(own.deliver, "topic", {"alternate-exchange": own.lost})]
    for level in range(LEVELS):
        name, below, digits = own.delay(level), own.delay(level - 1) if level else own.deliver, LEVELS - 1 - level
        found += (
            exchange(name, "topic"),
            queue(name, _dead_lettering(below, UNIT << level)),
            bind_queue(name, name, f"{'*.' * digits}1.#"),
            bind_exchange(below, name, f"{'*.' * digits}0.#"),
        )
    bounds = {"x-max-length": LOST_MESSAGES, "x-max-length-bytes": LOST_BYTES}
    found.append(queue(own.lost, {"x-queue-type": "quorum", "x-overflow": "drop-head", **bounds}))
    # only delayed messages match: others are unroutable, and are returned
    found.append(bind_queue(own.lost, own.lost, f"{'*.' * (LEVELS + 1)}*.#"))
    return found


def deliver_to_exchange(own: Own, destination: str, purges: int = 0) -> Request:
    """Return the binding from `deliver` to the exchange of a destination."""
    return bind_exchange(destination, own.deliver, f"{'*.' * LEVELS}{names.token(destination, purges)}.*")


def deliver_to_queue(own: Own, queue: str, purges: int = 0, *, partitioned: bool = False) -> Request:
    """Return the binding from `deliver` to one queue."""
    return bind_queue(queue, own.deliver, f"{'*.' * LEVELS}{to_queue(queue, purges)}{'.*' * partitioned}")


def dropping(own: Own) -> Request:
    """Return the queue for purged messages: it drops each at once."""
    return queue(own.dropped, {"x-queue-type": "quorum", "x-message-ttl": 0})


def relay(own: Own, exchange: str, routing_key: str | None = None, destination: str = "") -> Request:
    """Return a queue that dead-letters its messages at once to an exchange, with `routing_key` if there is one.

    Messages that are unroutable there stay in the queue, are published again every three minutes, and block no others.
    """
    arguments = _dead_lettering(exchange, 0)
    if routing_key is not None:
        arguments["x-dead-letter-routing-key"] = routing_key
    return queue(own.relay(exchange, routing_key, destination), arguments)


def _dead_lettering(exchange: str, wait: int) -> dict[str, Any]:
    """Return the arguments of a queue whose messages are dead-lettered to `exchange` after `wait` ms.

    Without any of quorum, at-least-once and reject-publish, RabbitMQ dead-letters at most once, and does not say so.
    """
    return {
        "x-queue-type": "quorum",
        "x-message-ttl": wait,
        "x-dead-letter-exchange": exchange,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


APART: Final = 20
"""Milliseconds that the levels add to a delay: 4 to 17 were measured on 3.10.8 on an idle machine."""
LATE: Final = 1000
"""Milliseconds that a message may wait longer to keep the order of its key. Only a burst of one key for one moment
needs more, and arrives as quickly as it was sent."""
_KEYS: Final = 4096

KeyQueue = tuple[str, str]
"""A destination's partition, and a key."""


class _Sent(NamedTuple):
    due: int
    wait: int
    arrives: int


class KeyOrder:
    """Computes waits that keep the order of each key, for some thousands of keys.

    Each level takes some milliseconds. So a message leaves the levels up to 120 ms before it is due, and the engine
    holds it until then. Messages with the same wait pass the same queues and keep their order. Two that wait 900 and
    1000 ms pass different ones and arrive in any order. So a message that would arrive close to the previous one of its
    key waits longer: as long as that one, or until some time after it.
    """

    def __init__(self) -> None:
        self._last: dict[KeyQueue, _Sent] = {}

    def wait(self, key_queue: KeyQueue | None, due: int, now: int) -> int:
        """Return how many ms, a multiple of `UNIT`, a message waits that the engine holds until `due`.

        `key_queue` is None for a message without a key.
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
    # 1 ms more: the broker counts in whole ms, and may be ahead by a part of one
    return min(_units(due - now + 1), LONGEST)


def _units(wait: int) -> int:
    return -(-max(wait, 0) // UNIT) * UNIT
