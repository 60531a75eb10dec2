"""Where streams begin and end: what a batch is planned by.

AMQP 0-9-1 has no question for that, and the number of messages that RabbitMQ reports is seconds old (3.10.8). But the
channel's process at the broker reads the stream itself, and sends on in one go all that is there, as far as the credit
goes. So after a reply on that channel, all messages stored before the request have arrived.

Each stream has a consumer at its end, which gets at most `_PREFETCH` messages between two plans. As long as it has
credit left, its last message is the stream's. One that has used it up is put to the end again. So 1,000 idle streams
cost nothing but one answer to wait for.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from pika.exceptions import AMQPError

from adapters.amqp.channel import Channel
from adapters.amqp.errors import of_channel
from adapters.amqp.link import Link
from adapters.amqp.properties import Properties
from adapters.rabbitmq.options import Options
from adapters.rabbitmq.topology.declarations import Layout
from adapters.rabbitmq.topology.names import Own
from bridge.errors import BackendUnavailable, DestinationUnknown
from bridge.mirror.offsets import Ranges
from bridge.mirror.sources.rabbitmq.catalogue import (
    OFFSET,
    PATIENCE,
    BlockingConnection,
    CatalogueReader,
    Stream,
    streams,
    until_arrived,
)

_AT_ONCE: Final = 500
"""Consumers between two answers that are waited for; one takes 1.5 ms."""


class First(NamedTuple):
    """A message with which a stream begins."""

    offset: int
    message: int
    """A hash of what it says: the same only for the same message."""


@dataclass(eq=False)
class Probe:
    """One consumer."""

    stream: str
    first: First | None = None
    """The first that came."""
    next: int | None = None
    """The one after the last that came."""
    unacked: int = 0


class Probes:
    """What comes is looked at and dropped."""

    def __init__(self, channel: Channel, prefetch: int) -> None:
        self._channel = channel
        self._prefetch = prefetch
        self._by_tag: dict[str, Probe] = {}
        self._number = 0
        self._newest = 0
        """The delivery tag of what came last."""
        self._acknowledged = 0
        self._cancelled = False
        channel.raw.add_on_cancel_callback(self._on_cancel)

    @classmethod
    async def open(cls, link: Link, prefetch: int) -> Self:
        """Open the channel: at most `prefetch` messages of each stream come before they are acknowledged."""
        probes = cls(await link.channel(), prefetch)
        await probes.settled()
        return probes

    async def attach(self, streams: Iterable[str], offset: str) -> list[Probe]:
        """Read streams from an offset on: `first`, or `last`, which is where the last chunk of messages begins.

        Raises `Refused`, or `BackendUnavailable`, also for a stream that is not there; the channel is closed then.
        """
        probes: list[Probe] = []
        try:
            for stream in streams:
                self._number += 1
                tag = f"{self._number}"
                probe = self._by_tag[tag] = Probe(stream)
                probes.append(probe)
                consume = {"queue": stream, "on_message_callback": self._arrived, "consumer_tag": tag}
                try:
                    self._channel.raw.basic_consume(**consume, arguments={OFFSET: offset})
                except AMQPError as error:
                    reason = self._channel.ended.result() if self._channel.ended.done() else error
                    raise of_channel(reason, stream) from error
                if len(probes) % _AT_ONCE == 0:
                    await self.settled(stream)
            await self.settled(probes[-1].stream if probes else "streams")
        except DestinationUnknown as error:  # deleted just now
            raise BackendUnavailable(error.detail) from error
        return probes

    async def detach(self, probes: Collection[Probe]) -> None:
        """Cancel the consumers of probes that have used up their credit.

        Nothing may arrive after that: pika rejects it, and RabbitMQ 3.10 closes the connection. A chunk is sent whole,
        beyond the credit, so its last messages may still be on their way.
        """
        if not probes:
            return
        await self.settled()
        detached = set(probes)
        for tag in [tag for tag, probe in self._by_tag.items() if probe in detached]:
            del self._by_tag[tag]
            self._channel.raw.basic_cancel(tag)
        await self.settled()

    def out_of_credit(self, probe: Probe) -> bool:
        """Whether nothing more comes of it before it is acknowledged."""
        return probe.unacked >= self._prefetch

    def acknowledge(self) -> None:
        """Give all of them their whole credit again."""
        if self._newest > self._acknowledged and self._channel.open:
            self._channel.raw.basic_ack(self._newest, multiple=True)
            self._acknowledged = self._newest
        for probe in self._by_tag.values():
            probe.unacked = 0

    async def settled(self, subject: str = "streams") -> None:
        """Return when everything is here that the broker has sent so far. Raises as `Channel.ask`."""
        await self._channel.ask(subject, "basic_qos", prefetch_count=self._prefetch)
        if self._cancelled:
            raise BackendUnavailable("RabbitMQ: a stream was deleted, or has no leader.")

    async def reach_end(self, probes: Collection[Probe]) -> None:
        """Renew the credit until all of them have some left. Raises `BackendUnavailable`."""
        for _ in range(_ROUNDS):
            await self.settled()
            if not any(map(self.out_of_credit, probes)):
                break
            self.acknowledge()

    async def close(self) -> None:
        """Read no more."""
        await self._channel.close()

    def _arrived(self, _channel: object, method: Any, properties: Properties, body: bytes) -> None:  # noqa: ANN401 - pika's
        self._newest = method.delivery_tag
        probe = self._by_tag[method.consumer_tag]
        offset = int((properties.headers or {})[OFFSET])
        if probe.first is None:
            probe.first = First(offset, hash((properties.message_id, properties.timestamp, body)))
        probe.next = offset + 1
        probe.unacked += 1

    def _on_cancel(self, _frame: object) -> None:
        self._cancelled = True


_PREFETCH: Final = 100
_ROUNDS: Final = 100
"""Times that the credit is renewed to reach the end of the last chunk, at most."""
_YOUNG: Final = 1.0
"""Seconds for the first message of a stream of which the broker says that it has none: its count is seconds old."""
_FIRSTS_VALID: Final = 10.0
"""Seconds for which the first offset of a growing log is cached: a reader that needs it sooner finds a gap."""
NO_LOG: Final = "it has no log"
NOT_THERE: Final = "its log does not exist"


class EndOffsets:
    """What is known of all streams. After any error it is of no use any more."""

    def __init__(self, options: Options, connection: BlockingConnection) -> None:
        self._options = options
        self._connection = connection
        self._catalogue: CatalogueReader | None = None
        self._probes: Probes | None = None
        self._ends: dict[str, Probe] = {}
        self.firsts: dict[str, First] = {}
        """Of streams that are not empty, as last read."""
        self._firsts_read: dict[str, tuple[int, float]] = {}
        """Where the stream ended then, and when that was."""
        self.streams: Mapping[str, Stream] = {}
        """What there should be, when it was last looked at."""
        self.missing: Collection[str] = ()
        """Those of them that are not there."""
        self._without_log: Sequence[str] = ()

    async def unmirrored(self) -> Mapping[str, str]:
        """Look, and return why, by destination. Raises as `bounds`."""
        await self.bounds()
        missing = [self.streams[name].destination for name in self.missing]
        return dict.fromkeys(self._without_log, NO_LOG) | dict.fromkeys(missing, NOT_THERE)

    async def read_catalogue(self) -> None:
        """Read the catalogue. Raises `Refused` or `BackendUnavailable`."""
        known: Mapping[str, Layout] = {}
        try:
            if self._catalogue is None:
                self._catalogue = await CatalogueReader.open(
                    await self._connection.link(), Own(self._options.prefix).catalogue
                )
            known = await self._catalogue.destinations()
        except DestinationUnknown:
            self._catalogue = None
        self.streams, self._without_log = streams(known, self._options)

    async def bounds(self) -> Ranges:
        """Return the first and the next offset of every stream there is. Raises `Refused` or `BackendUnavailable`."""
        await self.read_catalogue()
        if self._probes is None:
            self._probes = await Probes.open(await self._connection.link(), _PREFETCH)
        self.missing = await self._attach_new(self._probes)
        await self._probes.settled()
        await self._catch_up(self._probes)
        await self._read_firsts()
        return {
            name: (self.firsts[name].offset, probe.next) if probe.next else (0, 0) for name, probe in self._ends.items()
        }

    async def _attach_new(self, probes: Probes) -> Collection[str]:
        """Stand at the end of streams that are new here; return those that are not there."""
        new = [name for name in self.streams if name not in self._ends]
        existing = await self._existing(new)
        attached = await probes.attach(existing, "last")
        self._ends |= {probe.stream: probe for probe in attached}
        await _await_first(probes, [probe for probe in attached if existing[probe.stream]])
        await _first_without(probes, attached, _YOUNG)
        return set(new) - existing.keys()

    async def _existing(self, names: Collection[str]) -> dict[str, int]:
        """Return those that are there, with how many messages they are said to hold."""
        existing: dict[str, int] = {}
        channel: Channel | None = None
        for name in names:
            channel = channel or await (await self._connection.link()).channel()
            try:
                answer = await channel.ask(name, "queue_declare", queue=name, passive=True)
            except DestinationUnknown:
                channel = None
            else:
                existing[name] = int(answer.message_count)
        if channel is not None:
            await channel.close()
        return existing

    async def _catch_up(self, probes: Probes) -> None:
        """Put those to the end that have not come there, and let all of them get more until the next plan."""
        behind = [probe for probe in self._ends.values() if probes.out_of_credit(probe)]
        await probes.detach(behind)
        probes.acknowledge()
        moved = await probes.attach([probe.stream for probe in behind], "last")
        await _await_first(probes, moved)
        self._ends |= {probe.stream: probe for probe in moved}
        await probes.reach_end(moved)

    async def _read_firsts(self) -> None:
        now = time.monotonic()
        stale = [
            probe.stream
            for probe in self._ends.values()
            if probe.next
            and (
                (last := self._firsts_read.get(probe.stream)) is None
                or (last[0] != probe.next and now > last[1] + _FIRSTS_VALID)
            )
        ]
        if stale:
            firsts = await read_firsts(await self._connection.link(), stale)
            self.firsts |= firsts
            self._firsts_read |= {name: (self._ends[name].next or 0, now) for name in firsts}


async def read_firsts(link: Link, names: Collection[str]) -> dict[str, First]:
    """Return how streams that are not empty begin. Raises `BackendUnavailable`."""
    probes = await Probes.open(link, 1)
    found = await probes.attach(names, "first")
    await _await_first(probes, found)
    await probes.close()
    return {probe.stream: probe.first for probe in found if probe.first is not None}


async def read_end(link: Link, name: str) -> int | None:
    """Return the offset after the last of a stream; None if nothing came. Raises `BackendUnavailable`."""
    probes = await Probes.open(link, _PREFETCH)
    (probe,) = await probes.attach([name], "last")
    await probes.reach_end([probe])
    await probes.close()
    return probe.next


async def _await_first(probes: Probes, expected: Collection[Probe]) -> None:
    """Wait for the first message of each. Raises `BackendUnavailable` if there is one that gets none."""
    if waiting := await _first_without(probes, expected, PATIENCE):
        raise BackendUnavailable(f"{waiting.stream}: RabbitMQ sends nothing of it.")


async def _first_without(probes: Probes, expected: Collection[Probe], seconds: float) -> Probe | None:
    """Wait for the first message of each, for so long; return one that got none. Raises `BackendUnavailable`."""

    def waiting() -> Probe | None:
        return next((probe for probe in expected if probe.next is None), None)

    await probes.settled()
    await until_arrived(lambda: waiting() is None, probes.settled, seconds)
    return waiting()
