"""The bridge's own metadata, in a compacted topic of one partition that is read once, at the start."""

import asyncio
import json
import logging
import threading
from collections.abc import Mapping
from contextlib import closing
from typing import Final

from adapters.base import Stored
from adapters.kafka import errors
from adapters.kafka.connections import read_on
from adapters.kafka.names import Own
from adapters.kafka.options import Options
from adapters.kafka.produce.publisher import Publisher
from adapters.kafka.record import Outgoing, Part, Record
from adapters.kafka.topics import Topics
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable

_CONFIGS: Final = {"cleanup.policy": "compact"}
_NOT_READ: Final = "The bridge's metadata has not been read yet."

_log = logging.getLogger("bridge.kafka")


class MetadataTopic:
    """Entries by key: read once at the start, and written through.

    A bridge with an `instance` has its own entries. Bridges without share those of their prefix; what one of them
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
        """Read all entries; the topic is created with the first one. Raises `BackendUnavailable` or `Refused`."""
        there = await self._publisher.partitions(self._topic)
        notes: dict[str, str] = {}
        for record in await read_through(self._options, Part(self._topic, 0)) if there else ():
            self._read(record, notes)
        self._notes = notes

    async def put(self, key: str, value: str | None) -> None:
        """See `MetadataStore`. Raises also `Refused` if the bridge's user may not write or create the topic."""
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
            await asyncio.shield(written)  # a caller that no longer waits does not withdraw the entry

    def all(self) -> Mapping[str, str]:
        """See `MetadataStore`."""
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
            _log.warning("a record is not metadata of a bridge", extra={"topic": record.topic, "offset": record.offset})
        elif instance == self._options.instance:
            _put(notes, key, value)


def _put(notes: dict[str, str], key: str, value: str | None) -> None:
    if value is None:
        notes.pop(key, None)
    else:
        notes[key] = value


async def read_through(options: Options, part: Part) -> list[Record]:
    """Return every record up to the end as it is now. Raises `BackendUnavailable` or `Refused`."""
    abandoned = threading.Event()
    try:
        return await asyncio.to_thread(_read_through, options, part, abandoned)
    except Exception as error:
        raise errors.of_exception(error, part.topic) from error
    finally:
        abandoned.set()


def _read_through(options: Options, part: Part, abandoned: threading.Event) -> list[Record]:
    records: list[Record] = []
    with closing(read_on(options, part, None, abandoned)) as batches:
        for batch, caught_up in batches:
            records += batch
            if caught_up:
                break
    return records
