"""What is declared for a destination and for a group. Lists of declarations, which are pure, and who plays them.

To declare what is there already, in the same way, changes nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pika.exceptions import AMQPError

from adapters.amqp.channel import Channel
from adapters.amqp.errors import of_channel
from adapters.rabbitmq.options import Existing
from adapters.rabbitmq.topology import names

_AT_ONCE: Final = 16
"""Declarations between two answers that are waited for: a quorum queue takes 4 to 9 ms on 3.10.8."""
_SEGMENTS: Final = 8
"""Files of a full log: RabbitMQ drops the oldest as a whole, so it keeps between 7/8 and 9/8 of what it may."""
_SEGMENT_MAX: Final = 500_000_000
"""RabbitMQ's own."""
UNLIMITED: Final = 1_000_000_000
"""Deliveries: with a limit, what is given back keeps its place in a quorum queue. -1 destroys it below 4.0."""


class Layout(NamedTuple):
    """What every bridge must say alike of a destination; the catalogue has it from who was first."""

    partitions: int
    log_bytes: int
    """0: it keeps no log."""


class Step(NamedTuple):
    """One declaration: a method of pika's channel."""

    method: str
    arguments: Mapping[str, object]


class Tap(NamedTuple):
    """Where a queue gets what is published from: an exchange and what it is bound with."""

    exchange: str
    keys: tuple[str, ...]


def destination(name: str, log_bytes: int) -> list[Step]:
    """Return everything that messages are published through."""
    parts, rest = names.parts(name), names.rest(name)
    return [
        _exchange(rest, "fanout"),
        _exchange(parts, "topic", {"alternate-exchange": rest}),
        _exchange(name, "topic"),
        Step("exchange_bind", {"destination": parts, "source": name, "routing_key": "#"}),
        *log(name, Tap(name, ("#",)), log_bytes),
    ]


def log(name: str, tap: Tap, log_bytes: int) -> list[Step]:
    """Return the stream of a destination; nothing if it keeps none."""
    if not log_bytes:
        return []
    return [stream(names.log(name), log_bytes), *_bind(names.log(name), tap)]


def stream(name: str, max_bytes: int | None = None) -> Step:
    """Return a stream of about `max_bytes`; None: it keeps everything."""
    sizes = {}
    if max_bytes is not None:
        segment = max(1, min(max_bytes // _SEGMENTS, _SEGMENT_MAX))
        sizes = {"x-max-length-bytes": max_bytes, "x-stream-max-segment-size-bytes": segment}
    return _queue(name, {"x-queue-type": "stream", **sizes})


def looked_for(existing: Existing) -> list[Step]:
    """Return what only has to be there: an exchange, or a queue, that is none of the bridge's."""
    steps = []
    if existing.exchange is not None:
        steps.append(Step("exchange_declare", {"exchange": existing.exchange, "passive": True}))
    if existing.queue is not None:
        steps.append(Step("queue_declare", {"queue": existing.queue, "passive": True}))
    return steps


def created(name: str) -> list[Step]:
    """Return what has to be there of a destination that this bridge may not create."""
    there = (name, names.parts(name), names.rest(name))
    return [Step("exchange_declare", {"exchange": exchange, "passive": True}) for exchange in there]


def tap(existing: Existing) -> Tap:
    """Return how to hear of what is published to an exchange that is none of the bridge's.

    Without a routing key in the settings that is everything of a topic or fanout exchange, and of a direct one what
    is published without a key, as the bridge does.
    """
    return Tap(existing.exchange or "", ("#", "") if existing.routing_key is None else (existing.routing_key,))


def queues(name: str, group: str, partitions: int) -> list[Step]:
    """Return the queues of a group."""
    return [partition_queue(names.queue(name, group, partition)) for partition in range(partitions)]


def partition_queue(queue: str) -> Step:
    """Return a queue that one bridge at a time consumes, and where what is given back keeps its place."""
    return _queue(queue, {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-delivery-limit": UNLIMITED})


def bindings(name: str, group: str, partitions: int) -> list[Step]:
    """Return what makes its queues get messages."""
    parts, rest = names.parts(name), names.rest(name)
    taps = [Tap(parts, (f"#.{names.routing_key(partition)}",)) for partition in range(partitions)]
    # `rest` comes last: as long as `parts` does not bind `p3`, a message of partition 3 goes on to `rest`, and would
    # end in the queue of partition 0
    return [
        *(step for partition, each in enumerate(taps) for step in _bind(names.queue(name, group, partition), each)),
        *_bind(names.queue(name, group, 0), Tap(rest, ("",))),
    ]


def bound_to(name: str, group: str, existing: Tap) -> list[Step]:
    """Return the same where the exchange is none of the bridge's: there is one partition."""
    return _bind(names.queue(name, group, 0), existing)


def deleted(queues: Iterable[str]) -> list[Step]:
    """Return what removes queues; what is not there may be removed too."""
    return [Step("queue_delete", {"queue": queue}) for queue in queues]


async def play(channel: Channel, what: str, steps: Sequence[Step]) -> None:
    """Declare it all in order, most of it without waiting for each answer. The channel closes at the first refusal.

    Raises `Refused`, `DestinationUnknown` or `BackendUnavailable`, `what` it is about.
    """
    for at, step in enumerate(steps, 1):
        if at == len(steps) or at % _AT_ONCE == 0:
            await channel.ask(what, step.method, **step.arguments)
        else:
            try:
                getattr(channel.raw, step.method)(**step.arguments)
            except AMQPError as error:
                raise of_channel(channel.ended.result() if channel.ended.done() else error, what) from error


def _exchange(name: str, kind: str, arguments: Mapping[str, object] | None = None) -> Step:
    return Step(
        "exchange_declare", {"exchange": name, "exchange_type": kind, "durable": True, "arguments": arguments or {}}
    )


def _queue(name: str, arguments: Mapping[str, object]) -> Step:
    return Step("queue_declare", {"queue": name, "durable": True, "arguments": arguments})


def _bind(queue: str, tap: Tap) -> list[Step]:
    return [Step("queue_bind", {"queue": queue, "exchange": tap.exchange, "routing_key": key}) for key in tap.keys]
