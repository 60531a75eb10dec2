"""Delivery attempts of a partition, recorded in a queue that holds one message.

The record has the number of deliveries of each message that is delivered to consumers and not settled:

    {"by": "5f0c…", "counts": {"1": ["id", "id"], "3": ["id"]}, "window": 1200}

The next bridge that consumes the partition reads it. An id that is missing was not delivered to a consumer. The window,
if there is one, is the number of messages that may be unacknowledged: a quorum queue takes these back, and would change
their order if the next bridge, too, ended before it had got all of them (3.10.8).
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from pika import BasicProperties

from adapters.amqp.link import Link
from adapters.amqp.messages import Outgoing
from adapters.amqp.settings import REQUEST_TIMEOUT
from adapters.rabbitmq.consume.partition_state import Unacked
from adapters.rabbitmq.publish.confirm_channel import is_unroutable
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology import names
from adapters.rabbitmq.topology.names import Source
from bridge.errors import BridgeError, DestinationUnknown

_COUNT_MAX: Final = 2**31 - 1
_DIGITS_MAX: Final = 10
_EXPIRES: Final = 7 * 24 * 3600 * 1000
"""Milliseconds after which a queue that is not read is deleted."""
_ARGUMENTS: Final = {"x-max-length": 1, "x-overflow": "drop-head", "x-expires": _EXPIRES}
"""Of a classic queue: a quorum queue that was declared 2 s before its broker was killed had no leader afterwards, and
its reader waits forever (3.10.8). If the node of a classic queue is down, RabbitMQ's own count is used."""
_DELAY: Final = 0.02
"""Seconds from a delivery to the record, if it is not settled by then."""
_INTERVAL: Final = 0.25
"""Seconds between two records of a partition, at least."""
_TIMEOUT: Final = REQUEST_TIMEOUT / 1000 / 2
"""Seconds that one record may take."""
_log = logging.getLogger("bridge.rabbitmq")
_PROPERTIES: Final = BasicProperties(content_type="application/json", delivery_mode=2)


class AttemptsRecord(NamedTuple):
    """The attempts of one partition."""

    by: str
    """The random token of the subscription that wrote it."""
    attempts: Mapping[str, int]
    """By message id."""
    window: int = 0
    """Number of messages that may be unacknowledged; 0: as many as usually."""


def encode(record: AttemptsRecord) -> bytes:
    """Return the body of a record."""
    counts: dict[int, list[str]] = {}
    for identity, count in record.attempts.items():
        counts.setdefault(count, []).append(identity)
    window = {"window": record.window} if record.window else {}
    return json.dumps({"by": record.by, "counts": counts, **window}, separators=(",", ":")).encode()


def decode(body: bytes) -> AttemptsRecord | None:
    """Read a record; None: another program wrote it."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    match found:
        case {"by": str(by), "counts": dict(counts)} if all(_is_valid(*each) for each in counts.items()):
            pairs = ((each, min(int(digits), _COUNT_MAX)) for digits, ids in counts.items() for each in ids)
            window = found.get("window")
            return AttemptsRecord(by, dict(pairs), window if isinstance(window, int) else 0)
    return None


def _is_valid(digits: str, identities: object) -> bool:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        return False
    return isinstance(identities, list) and all(isinstance(identity, str) for identity in identities)


async def read_attempts(link: Link, queue: str) -> AttemptsRecord | None:
    """Return the last record in a queue; None: there is none. Raises `BackendUnavailable` or `Refused`."""
    try:
        async with link.temporary_channel() as channel:  # closing it returns the record to the queue
            body = await channel.get(queue)
    except DestinationUnknown:
        return None
    return None if body is None else decode(body)


class AttemptsWriter:
    """Records the attempts of one partition: soon after deliveries, and surely before the partition is released."""

    def __init__(self, link: Link, publisher: Publisher, source: Source, by: str, unacked: Unacked[Any]) -> None:
        """`link` declares and reads. If others own the partition's queue, no attempts are recorded."""
        self._link = link
        self._publisher = publisher
        self._queue = names.attempts_of(source)
        self._records = not source.shared
        self._by = by
        self._unacked = unacked
        self._loop = asyncio.get_running_loop()
        self._declared = False
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._changed = False
        """Whether attempts have changed while a record was being written."""
        self.window = 0
        """See `AttemptsRecord`."""
        self._written: dict[str, int] | None = None
        """The last record; None: not known."""

    def changed(self) -> None:
        """Write a record soon; the caller does not wait."""
        if self._writing is not None:
            self._changed = True
        elif self._timer is None and self._records:
            self._timer = self._loop.call_at(max(self._loop.time() + _DELAY, self._not_before), self._begin)

    async def record_window(self, window: int) -> bool:
        """Record the number of messages that may be unacknowledged from now on; returns whether that succeeded."""
        self.window = window
        if not self._records:
            return True
        if self._writing is not None:
            await asyncio.wait((self._writing,))
        self._writing = writing = self._loop.create_task(self._write())
        await asyncio.wait((writing,))
        return self._written is not None

    async def read(self) -> AttemptsRecord | None:
        """Return the last record; None: there is none. Raises `BackendUnavailable` or `Refused`."""
        return await read_attempts(self._link, self._queue)

    async def finish(self) -> None:
        """Write a last record for the next bridge, if messages are unacknowledged. Limited in time; does not raise."""
        writing = self.stop()
        if writing is not None:
            await asyncio.wait((writing,))
        if not self._records:
            return
        if self._unacked.unacknowledged and not self._unacked.attempts_known:
            await self._read_earlier()
        # also if nothing was delivered to consumers: without a record the broker's count would be taken for attempts
        record = self._unacked.attempts_record()
        if self._unacked.attempts_known and self._unacked.unacknowledged and self._written != record:
            await self._write()

    async def _read_earlier(self) -> None:
        """Read the record that is about to be replaced: no message has needed it before."""
        with suppress(BridgeError, TimeoutError):
            async with asyncio.timeout(_TIMEOUT):
                record = await self.read()
            if record is not None and record.by != self._by:
                self._unacked.set_attempts(record.attempts)
            else:
                self._unacked.set_attempts(None if self._unacked.attempts_missing else {})

    def stop(self) -> asyncio.Task[None] | None:
        """Write no more; returns the task that is being cancelled."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            self._writing.cancel()
        return self._writing

    def _begin(self) -> None:
        self._timer = None
        if self._unacked.attempts:  # otherwise everything was settled meanwhile
            self._writing = self._loop.create_task(self._write())

    async def _write(self) -> None:
        attempts = self._unacked.attempts_record()
        self._written, self._changed = None, False
        try:
            async with asyncio.timeout(_TIMEOUT):
                await self._publish(
                    Outgoing("", self._queue, _PROPERTIES, encode(AttemptsRecord(self._by, attempts, self.window)))
                )
        except (BridgeError, TimeoutError) as error:
            _log.info("%s: delivery counts were not recorded: %s", self._queue, error)
        else:
            self._written = attempts
        self._writing = None
        self._not_before = self._loop.time() + _INTERVAL
        if self._changed:
            self.changed()

    async def _publish(self, outgoing: Outgoing) -> None:
        if not self._declared:
            await self._declare()
        try:
            await self._publisher.send(outgoing)
        except BridgeError as error:
            if not is_unroutable(error):
                raise
            await self._declare()  # it has expired
            await self._publisher.send(outgoing)

    async def _declare(self) -> None:
        async with self._link.temporary_channel() as channel:
            await channel.ask(self._queue, "queue_declare", queue=self._queue, durable=True, arguments=_ARGUMENTS)
        self._declared = True
