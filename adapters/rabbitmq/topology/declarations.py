"""The exchanges, queues, streams and bindings of a destination and of a group, as lists of requests; pure but for two.

Declaring something that exists with the same arguments changes nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pika.exceptions import AMQPError

from adapters.amqp.channel import Channel
from adapters.amqp.errors import of_channel
from adapters.amqp.link import Link
from adapters.rabbitmq.options import Existing
from adapters.rabbitmq.topology import names

_IN_FLIGHT: Final = 16
"""Requests sent for each answer that is waited for: declaring a quorum queue takes 4 to 9 ms on 3.10.8."""
_SEGMENTS: Final = 8
"""Segment files of a full log. RabbitMQ drops the oldest file as a whole, so a log has 7/8 to 9/8 of its limit."""
_SEGMENT_MAX: Final = 500_000_000
"""RabbitMQ's default, bytes."""
UNLIMITED: Final = 1_000_000_000
"""Deliveries. With a limit, a returned message keeps its place in a quorum queue. Below 4.0, -1 drops messages.

A policy may set a lower limit: so there is a queue for the messages that exceed it, see `consume.returned`.
"""


_CONSUMED_BY_ONE: Final[Mapping[str, Any]] = {
    "x-queue-type": "quorum",
    "x-single-active-consumer": True,
    "x-delivery-limit": UNLIMITED,
}


class Layout(NamedTuple):
    """Properties of a destination that all bridges must agree on: the first entry in the catalogue decides."""

    partitions: int
    log_bytes: int
    """0: it has no log."""


class Request(NamedTuple):
    """A method of pika's channel, and its arguments."""

    method: str
    arguments: Mapping[str, Any]


def destination(name: str, log_bytes: int) -> list[Request]:
    """Return the exchanges of a destination, and its log."""
    parts, rest = names.parts(name), names.rest(name)
    return [
        exchange(rest, "fanout"),
        exchange(parts, "topic", {"alternate-exchange": rest}),
        exchange(name, "topic"),
        bind_exchange(parts, name, "#"),
        *log(name, log_bytes),
    ]


def log(name: str, log_bytes: int, existing: Existing | None = None) -> list[Request]:
    """Return the stream of a destination and its bindings; nothing if `log_bytes` is 0."""
    if not log_bytes:
        return []
    return [stream(names.log(name), log_bytes), *_bind_to(existing or Existing(name, "#"), names.log(name))]


def stream(name: str, max_bytes: int) -> Request:
    """Return a stream of about `max_bytes`."""
    segment = max(1, min(max_bytes // _SEGMENTS, _SEGMENT_MAX))
    sizes = {"x-max-length-bytes": max_bytes, "x-stream-max-segment-size-bytes": segment}
    return queue(name, {"x-queue-type": "stream", **sizes})


def check_existing(existing: Existing) -> list[Request]:
    """Return the checks that an exchange or a queue of others exists."""
    checks = []
    if existing.exchange is not None:
        checks.append(Request("exchange_declare", {"exchange": existing.exchange, "passive": True}))
    if existing.queue is not None:
        checks.append(Request("queue_declare", {"queue": existing.queue, "passive": True}))
    return checks


def check_destination(name: str) -> list[Request]:
    """Return the checks that a destination exists which this bridge may not create."""
    exchanges = (name, names.parts(name), names.rest(name))
    return [Request("exchange_declare", {"exchange": each, "passive": True}) for each in exchanges]


def group_queues(name: str, group: str, partitions: int) -> list[Request]:
    """Return the queues of a group."""
    returned = names.returned(name, group)
    queues = [partition_queue(names.queue(name, group, partition), returned) for partition in range(partitions)]
    return [queue(returned, _CONSUMED_BY_ONE), *queues]


def partition_queue(name: str, returned: str) -> Request:
    """Return a quorum queue with a single active consumer, in which returned messages keep their place.

    If a policy limits their deliveries, RabbitMQ moves them to the queue `returned`: at least once, for which it also
    needs reject-publish.
    """
    moving = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": returned}
    safely = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    return queue(name, {**_CONSUMED_BY_ONE, **moving, **safely})


def group_bindings(name: str, group: str, partitions: int, existing: Existing | None = None) -> list[Request]:
    """Return the bindings of a group's queues; to an exchange of others it has one partition."""
    if existing is not None:
        return _bind_to(existing, names.queue(name, group, 0))
    queues = [names.queue(name, group, partition) for partition in range(partitions)]
    parts = names.parts(name)
    # `rest` is last: until `parts` has a binding of `p3`, a message of partition 3 goes by `rest` to partition 0
    return [
        *(bind_queue(each, parts, f"#.{names.routing_key(partition)}") for partition, each in enumerate(queues)),
        bind_queue(queues[0], names.rest(name), ""),
    ]


def witness(name: str, destination: str, existing: Existing | None = None) -> list[Request]:
    """Return an exclusive queue that gets the same messages as the log of the destination, and its bindings."""
    queue = Request("queue_declare", {"queue": name, "exclusive": True, "auto_delete": True})
    return [queue, *_bind_to(existing or Existing(destination, "#"), name)]


def delete_queues(queues: Iterable[str]) -> list[Request]:
    """Return the deletions of queues, which need not exist."""
    return [Request("queue_delete", {"queue": each}) for each in queues]


def exchange(name: str, kind: str, arguments: Mapping[str, Any] | None = None) -> Request:
    """Return a durable exchange of a type: `topic`, `fanout`."""
    of_type = {"exchange_type": kind, "durable": True}
    return Request("exchange_declare", {"exchange": name, **of_type, "arguments": arguments or {}})


def queue(name: str, arguments: Mapping[str, Any]) -> Request:
    """Return a durable queue."""
    return Request("queue_declare", {"queue": name, "durable": True, "arguments": arguments})


def bind_queue(name: str, exchange: str, key: str) -> Request:
    """Return a binding of a queue to an exchange."""
    return Request("queue_bind", {"queue": name, "exchange": exchange, "routing_key": key})


def bind_exchange(name: str, source: str, key: str) -> Request:
    """Return a binding of an exchange to another one, from which it gets messages."""
    return Request("exchange_bind", {"destination": name, "source": source, "routing_key": key})


async def perform_on(link: Link, subject: str, requests: Sequence[Request]) -> None:
    """Send requests in order on a channel of their own; see `perform`."""
    async with link.temporary_channel() as channel:
        await perform(channel, subject, requests)


async def perform(channel: Channel, subject: str, requests: Sequence[Request]) -> None:
    """Send requests in order, most without waiting for the answer. The first refusal closes the channel.

    `subject` is named in errors. Raises `Refused`, `DestinationUnknown` or `BackendUnavailable`.
    """
    for at, request in enumerate(requests, 1):
        if at == len(requests) or at % _IN_FLIGHT == 0:
            await channel.ask(subject, request.method, **request.arguments)
        else:
            try:
                getattr(channel.raw, request.method)(**request.arguments)
            except AMQPError as error:
                raise of_channel(channel.ended.result() if channel.ended.done() else error, subject) from error


def _bind_to(existing: Existing, queue: str) -> list[Request]:
    """Return the bindings of a group's queue, or of a log, to an exchange of others.

    Without a routing key in the settings it gets every message of a topic or fanout exchange, and from a direct one the
    messages without a key, as the bridge publishes them.
    """
    keys = ("#", "") if existing.routing_key is None else (existing.routing_key,)
    return [bind_queue(queue, existing.exchange or "", key) for key in keys]
