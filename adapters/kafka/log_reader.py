"""Reads one of the bridge's own topics from its beginning: to its end, or as long as the reader is open."""

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from kafka import TopicPartition

from adapters.kafka import errors
from adapters.kafka.connections import reading
from adapters.kafka.mapping import Part, Record, fetched
from adapters.kafka.options import REQUEST_TIMEOUT, Options
from adapters.kafka.thread_to_loop import ThreadToLoop, until_ended
from bridge.errors import BackendUnavailable, BridgeError

_PATIENCE: Final = 20.0
"""Seconds without a record, before the end is reached, after which the brokers are said not to answer."""
_POLL: Final = 200
"""Milliseconds of a poll that finds nothing; so long may stopping take."""
_PAUSE: Final = 1.0
"""Seconds between two attempts to read."""
_FETCH_MAX: Final = 8 << 20


class LogReader:
    """Passes on each committed record once, in order, on the event loop. Connects again until it is stopped."""

    def __init__(
        self,
        options: Options,
        part: Part,
        take: Callable[[list[Record]], None],
        failed: Callable[[BridgeError], None] = lambda _: None,
    ) -> None:
        """`failed` is called once for each outage."""
        self._options = options
        self._part = part
        self._take = take
        self._failed = failed
        self._next: int | None = None
        self._failing = False
        loop = asyncio.get_running_loop()
        self._to_loop = ThreadToLoop(loop)
        self.caught_up: asyncio.Future[None] = loop.create_future()
        """Done when all records are passed on that there were at the start; raises `BackendUnavailable`, `Refused`."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kafka-{part.topic}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread soon."""
        self._stopping.set()

    async def close(self) -> None:
        """End the thread. Idempotent."""
        self.stop()
        await until_ended(self._thread)

    # On the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._read()
            except Exception as error:  # noqa: BLE001 - another connection may do better
                problem = errors.of_exception(error, self._part.topic)
                if not self._failing:
                    self._failing = True
                    self._to_loop.put(partial(self._failed, problem))
                self._to_loop.answer(self.caught_up, problem)
                self._stopping.wait(_PAUSE)

    def _read(self) -> None:
        settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        with reading(self._options, max_partition_fetch_bytes=_FETCH_MAX, **settings) as consumer:
            place = TopicPartition(*self._part)
            consumer.assign([place])
            if self._next is not None:
                consumer.seek(place, self._next)
            end = consumer.end_offsets([place], timeout_ms=REQUEST_TIMEOUT)[place]
            caught_up, patient_until = False, time.monotonic() + _PATIENCE
            while not self._stopping.is_set():
                if not caught_up and (consumer.position(place, timeout_ms=_POLL) or 0) >= end:
                    caught_up = True
                    self._to_loop.answer(self.caught_up, None)
                elif not caught_up and time.monotonic() > patient_until:
                    raise BackendUnavailable(f"{self._part.topic}: Kafka has not answered in time.")
                if records := [fetched(each) for each in consumer.poll(timeout_ms=_POLL).get(place, ())]:
                    self._next = records[-1].offset + 1
                    self._failing = False
                    patient_until = time.monotonic() + _PATIENCE
                    self._to_loop.put(partial(self._take, records))


async def read_through(options: Options, part: Part) -> list[Record]:
    """Return every record up to the end as it is now. Raises `BackendUnavailable` or `Refused`."""
    records: list[Record] = []
    reader = LogReader(options, part, records.extend)
    try:
        await reader.caught_up
    finally:
        reader.stop()
    return records
