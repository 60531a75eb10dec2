"""The bridge's own few notes, in a compacted topic of one partition."""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Final

from adapters.base import Stored
from adapters.clock import wall
from adapters.kafka.drivers.kafka_python.reader import read_through
from adapters.kafka.names import Own
from adapters.kafka.options import Options
from adapters.kafka.publisher import Publisher
from adapters.kafka.record import Outgoing, Part, Record
from adapters.kafka.topics import Topics
from bridge.errors import BackendUnavailable

_CONFIGS: Final = {"cleanup.policy": "compact"}
_NOT_READ: Final = "The bridge's notes have not been read yet."

_log = logging.getLogger("bridge.kafka")


class Notes:
    """What was kept, by key: read once at the start, and written through.

    A bridge with an `instance` has notes of its own. Bridges without share those of their prefix; what one of them
    changes reaches the others when they start.
    """

    def __init__(self, options: Options, topics: Topics, publisher: Publisher) -> None:
        self._options = options
        self._topic = Own(options.prefix).notes
        self._topics = topics
        self._publisher = publisher
        self._notes: dict[str, str] | None = None
        self._keeping = asyncio.Lock()

    async def start(self) -> None:
        """Read what is kept; there is no topic before there was a note. Raises `BackendUnavailable` or `Refused`."""
        there = await self._publisher.partitions(self._topic)
        notes: dict[str, str] = {}
        for record in await read_through(self._options, Part(self._topic, 0)) if there else ():
            self._read(record, notes)
        self._notes = notes

    async def keep(self, key: str, value: str | None) -> None:
        """See `Notebook`. Raises also `Refused`, where the bridge's user may not write or make the topic."""
        async with self._keeping:
            if self._notes is None:
                raise BackendUnavailable(_NOT_READ)
            notes = self._notes
            if value is None and await self._publisher.partitions(self._topic) is None:
                return  # nothing was ever kept
            await self._topics.ensure(self._topic, 1, _CONFIGS)
            written = self._publisher.send(self._record(key, value))

            def note(done: asyncio.Future[Stored]) -> None:
                if not done.cancelled() and done.exception() is None:
                    _put(notes, key, value)

            written.add_done_callback(note)
            await asyncio.shield(written)  # whoever no longer waits does not withdraw the note

    def kept(self) -> Mapping[str, str]:
        """See `Notebook`."""
        if self._notes is None:
            raise BackendUnavailable(_NOT_READ)
        return self._notes

    def _record(self, key: str, value: str | None) -> Outgoing:
        """JSON, for Kafka's own tools show it, and any text of Python's can be written with it."""
        whole = json.dumps([self._options.instance, key]).encode()
        body = None if value is None else json.dumps(value).encode()
        return Outgoing(self._topic, 0, wall(), whole, body, ())

    def _read(self, record: Record, notes: dict[str, str]) -> None:
        try:
            instance, key = json.loads(record.key or b"")
            value = None if record.value is None else json.loads(record.value)
        except (TypeError, ValueError):
            key = value = None
        if not isinstance(key, str) or not isinstance(value, str | None):
            _log.warning("a record is no note of a bridge", extra={"topic": record.topic, "offset": record.offset})
        elif instance == self._options.instance:
            _put(notes, key, value)


def _put(notes: dict[str, str], key: str, value: str | None) -> None:
    if value is None:
        notes.pop(key, None)
    else:
        notes[key] = value
