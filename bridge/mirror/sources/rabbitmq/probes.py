"""Consumers of many streams on one channel: how one finds out where streams begin and end.

AMQP 0-9-1 has no question for that, and the number of messages that RabbitMQ reports is seconds old (3.10.8). But the
channel's process at the broker reads the stream itself, and sends on in one go all that is there, as far as the credit
goes. So an answer on that channel means that all that was stored at the request has come.
"""

from collections.abc import Iterable
from typing import Any, Final, Self

from pika.exceptions import AMQPError

from adapters.amqp.channel import Channel
from adapters.amqp.errors import of_channel
from adapters.amqp.link import Link
from adapters.amqp.properties import Properties
from bridge.errors import BackendUnavailable

OFFSET: Final = "x-stream-offset"
"""An argument of the consumer, and a header of what it gets."""
_AT_ONCE: Final = 500
"""Consumers between two answers that are waited for; one takes 1.5 ms."""


class Probe:
    """One consumer."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.first: int | None = None
        """The first offset that came."""
        self.next: int | None = None
        """The one after the last that came."""
        self.unacked = 0


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

        Raises `DestinationUnknown`, `Refused` or `BackendUnavailable`; there is no channel any more then.
        """
        probes = []
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
                await self._answer(stream)
        await self._answer(probes[-1].stream if probes else "streams")
        return probes

    async def detach(self, probes: Iterable[Probe]) -> None:
        """Read them no more.

        They must have used up their credit: pika gives back what comes after that, and RabbitMQ 3.10 closes the
        connection over it.
        """
        gone = set(probes)
        for tag in [tag for tag, probe in self._by_tag.items() if probe in gone]:
            del self._by_tag[tag]
            self._channel.raw.basic_cancel(tag)
        await self._answer("streams")

    def spent(self, probe: Probe) -> bool:
        """Whether nothing more comes of it before it is acknowledged."""
        return probe.unacked >= self._prefetch

    def acknowledge(self) -> None:
        """Give all of them their whole credit again."""
        if self._newest > self._acknowledged and self._channel.open:
            self._channel.raw.basic_ack(self._newest, multiple=True)
            self._acknowledged = self._newest
        for probe in self._by_tag.values():
            probe.unacked = 0

    async def settled(self) -> None:
        """Return when everything is here that the broker has sent so far. Raises `BackendUnavailable`."""
        await self._answer("streams")

    async def close(self) -> None:
        """Read no more."""
        await self._channel.close()

    async def _answer(self, what: str) -> None:
        await self._channel.ask(what, "basic_qos", prefetch_count=self._prefetch)
        if self._cancelled:
            raise BackendUnavailable("RabbitMQ: a stream was deleted, or has no leader.")

    def _arrived(self, _channel: object, method: Any, properties: Properties, _body: bytes) -> None:  # noqa: ANN401 - pika's
        self._newest = method.delivery_tag
        probe = self._by_tag[method.consumer_tag]
        offset = int((properties.headers or {})[OFFSET])
        if probe.first is None:
            probe.first = offset
        probe.next = offset + 1
        probe.unacked += 1

    def _on_cancel(self, _frame: object) -> None:
        self._cancelled = True
