"""Where all streams begin and end: what a batch is planned by.

A consumer stands at the end of each stream, and gets at most `_PREFETCH` messages between two plans. As long as it has
credit left, its last message is the stream's. One that has used it up is put to the end again. So 1,000 idle streams
cost nothing but one answer to wait for.
"""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from adapters.rabbitmq.channel import Channel
from adapters.rabbitmq.link import Link
from adapters.rabbitmq.names import Own
from adapters.rabbitmq.options import Options
from adapters.rabbitmq.topology import Layout
from bridge.errors import BackendUnavailable, DestinationUnknown
from bridge.mirror.manifest import Ranges
from bridge.mirror.sources.rabbitmq.book import BookReader
from bridge.mirror.sources.rabbitmq.line import Line
from bridge.mirror.sources.rabbitmq.streams import Stream, streams, without_log
from bridge.mirror.sources.rabbitmq.taps import Tap, Taps

_PREFETCH: Final = 100
_ROUNDS: Final = 100
"""How often at most the credit is given anew, to come to the end of the last chunk."""
_PATIENCE: Final = 10.0
"""Seconds for the first message of a stream that has some."""
_SOON: Final = 0.01
_YOUNG: Final = 0.2
_HEADS: Final = 10.0
"""Seconds for which a first offset is believed where the log goes on to grow: until then the reader finds a gap."""
NO_LOG: Final = "it keeps no log"
NOT_THERE: Final = "its log is not there"


class Tails:
    """What is known of all streams. After any error it is of no use any more."""

    def __init__(self, options: Options, line: Line) -> None:
        self._options = options
        self._line = line
        self._book: BookReader | None = None
        self._taps: Taps | None = None
        self._tails: dict[str, Tap] = {}
        self._heads: dict[str, tuple[int, int, float]] = {}
        """First offset, the end and the time when it was read."""
        self.streams: Mapping[str, Stream] = {}
        """What there should be, when it was last looked at."""
        self.missing: Collection[str] = ()
        """Those of them that are not there."""
        self._without_log: Sequence[str] = ()

    @property
    def unmirrored(self) -> Mapping[str, str]:
        """Why, by destination."""
        missing = [self.streams[name].destination for name in self.missing]
        return dict.fromkeys(self._without_log, NO_LOG) | dict.fromkeys(missing, NOT_THERE)

    async def look(self) -> None:
        """Read the book. Raises `Refused` or `BackendUnavailable`."""
        known: Mapping[str, Layout] = {}
        try:
            if self._book is None:
                self._book = await BookReader.open(await self._line.link(), Own(self._options.prefix).book)
            known = await self._book.destinations()
        except DestinationUnknown:
            self._book = None
        self.streams = streams(known, self._options)
        self._without_log = without_log(known, self._options)

    async def bounds(self) -> Ranges:
        """Return the first and the next offset of every stream there is. Raises as `look`."""
        await self.look()
        if self._taps is None:
            self._taps = await Taps.open(await self._line.link(), _PREFETCH)
        self.missing = await self._attach_new(self._taps)
        await self._taps.settled()
        await self._catch_up(self._taps)
        await self._read_heads()
        return {name: (self._heads[name][0], tap.next) if tap.next else (0, 0) for name, tap in self._tails.items()}

    async def _attach_new(self, taps: Taps) -> Collection[str]:
        """Stand at the end of streams that are new here; return those that are not there."""
        new = [name for name in self.streams if name not in self._tails]
        there = await self._there(new)
        try:
            attached = await taps.attach(there, "last")
        except DestinationUnknown as error:
            raise BackendUnavailable(error.detail) from error  # deleted just now
        self._tails |= {tap.stream: tap for tap in attached}
        await _first_came(taps, [tap for tap in attached if there[tap.stream]])
        if any(tap.next is None for tap in attached):  # empty, or so young that the broker has not counted yet
            await asyncio.sleep(_YOUNG)
        return set(new) - there.keys()

    async def _there(self, names: Collection[str]) -> dict[str, int]:
        """Return those that are there, with how many messages they are said to hold."""
        there: dict[str, int] = {}
        channel: Channel | None = None
        for name in names:
            channel = channel or await (await self._line.link()).channel()
            try:
                answer = await channel.ask(name, "queue_declare", queue=name, passive=True)
            except DestinationUnknown:
                channel = None
            else:
                there[name] = int(answer.message_count)
        if channel is not None:
            await channel.close()
        return there

    async def _catch_up(self, taps: Taps) -> None:
        """Put those to the end that have not come there, and let all of them get more until the next plan."""
        behind = [tap for tap in self._tails.values() if taps.spent(tap)]
        await taps.detach(behind)
        taps.acknowledge()
        moved = await taps.attach([tap.stream for tap in behind], "last")
        await _first_came(taps, moved)
        self._tails |= {tap.stream: tap for tap in moved}
        for _ in range(_ROUNDS):
            await taps.settled()
            if not any(taps.spent(tap) for tap in moved):
                break
            taps.acknowledge()

    async def _read_heads(self) -> None:
        now = time.monotonic()
        stale = [
            tap.stream
            for tap in self._tails.values()
            if tap.next
            and ((head := self._heads.get(tap.stream)) is None or (head[1] != tap.next and now > head[2] + _HEADS))
        ]
        if stale:
            firsts = await read_firsts(await self._line.link(), stale)
            self._heads |= {name: (first, self._tails[name].next or 0, now) for name, first in firsts.items()}


async def read_firsts(link: Link, names: Collection[str]) -> dict[str, int]:
    """Return the first offset of streams that are not empty. Raises `BackendUnavailable`."""
    taps = await Taps.open(link, 1)
    try:
        found = await taps.attach(names, "first")
        await _first_came(taps, found)
    except DestinationUnknown as error:
        raise BackendUnavailable(error.detail) from error
    await taps.close()
    return {tap.stream: tap.first for tap in found if tap.first is not None}


async def read_end(link: Link, name: str) -> int | None:
    """Return the offset after the last of a stream; None if nothing came. Raises `BackendUnavailable`."""
    taps = await Taps.open(link, _PREFETCH)
    try:
        (tap,) = await taps.attach([name], "last")
    except DestinationUnknown as error:
        raise BackendUnavailable(error.detail) from error
    for _ in range(_ROUNDS):
        await taps.settled()
        if not taps.spent(tap):
            break
        taps.acknowledge()
    await taps.close()
    return tap.next


async def _first_came(taps: Taps, expected: Collection[Tap]) -> None:
    """Wait for the first message of each. Raises `BackendUnavailable` if there is one that gets none."""
    deadline = time.monotonic() + _PATIENCE
    await taps.settled()
    while waiting := next((tap for tap in expected if tap.next is None), None):
        if time.monotonic() > deadline:
            raise BackendUnavailable(f"{waiting.stream}: RabbitMQ sends nothing of it.")
        await asyncio.sleep(_SOON)
        await taps.settled()
