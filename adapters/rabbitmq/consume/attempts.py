"""The notes of partitions, each in a queue that holds one message.

A note says how often what is handed out, and not settled, has been handed out:

    {"by": "5f0c…", "counts": {"1": ["id", "id"], "3": ["id"]}}

The next holder of the partition reads it. An id that is not in it was not handed out.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from pika import BasicProperties
from pika.spec import Basic

from adapters.amqp.channel import Channel
from adapters.amqp.errors import of_channel
from adapters.amqp.link import Link
from adapters.amqp.messages import Outgoing
from adapters.amqp.settings import REQUEST_TIMEOUT
from adapters.rabbitmq.consume.unacked import Unacked
from adapters.rabbitmq.publish.outcomes import is_unroutable
from adapters.rabbitmq.publish.publisher import Publisher
from bridge.errors import BackendUnavailable, BridgeError, DestinationUnknown

_COUNT_MAX: Final = 2**31 - 1
_DIGITS_MAX: Final = 10


class AttemptsRecord(NamedTuple):
    """What is known of the deliveries of one partition."""

    by: str
    """Who wrote it: a subscription's own token."""
    attempts: Mapping[str, int]
    """By message id."""


def encode(note: AttemptsRecord) -> bytes:
    """Write a note."""
    counts: dict[int, list[str]] = {}
    for identity, count in note.attempts.items():
        counts.setdefault(count, []).append(identity)
    return json.dumps({"by": note.by, "counts": counts}, separators=(",", ":")).encode()


def decode(body: bytes) -> AttemptsRecord | None:
    """Read a note; None: another program wrote it."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    by, counts = found.get("by"), found.get("counts")
    if not isinstance(by, str) or not isinstance(counts, dict):
        return None
    attempts: dict[str, int] = {}
    for digits, identities in counts.items():
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX and isinstance(identities, list)):
            return None
        if not all(isinstance(identity, str) for identity in identities):
            return None
        attempts.update(dict.fromkeys(identities, min(int(digits), _COUNT_MAX)))
    return AttemptsRecord(by, attempts)


_KEPT: Final = 7 * 24 * 3600 * 1000
"""Milliseconds without a reader of a note, after which its queue goes."""
_ARGUMENTS: Final = {
    "x-max-length": 1,
    "x-overflow": "drop-head",
    "x-expires": _KEPT,
}
"""A classic queue: a quorum queue that was declared 2 s before its broker was killed had no leader afterwards (3.10.8),
and its reader waits forever. Where the node of a classic queue is away, the broker's own count has to do."""
_SOON: Final = 0.02
"""Seconds after which something that was handed out, and is not settled, is written down."""
_GAP: Final = 0.25
"""Seconds between two writings of one note, at least."""
_TIMEOUT: Final = REQUEST_TIMEOUT / 1000 / 2
"""Seconds that one writing may take."""
_log = logging.getLogger("bridge.rabbitmq")
_PROPERTIES: Final = BasicProperties(content_type="application/json", delivery_mode=2)


def attempts_queue(queue: str, partition: int) -> str:
    """Return the name that `names.attempts` gives to the note of a partition with this queue."""
    return f"{queue.removesuffix(f'.p{partition}')}.n{partition}"


class AttemptsStore:
    """Of all partitions of one subscription."""

    def __init__(self, link: Link, publisher: Publisher) -> None:
        """`link` declares and reads."""
        self._link = link
        self._publisher = publisher
        self._declared: set[str] = set()

    async def write(self, queue: str, note: AttemptsRecord) -> None:
        """Put a note in the place of the last one. Raises the error tree."""
        if queue not in self._declared:
            await self._declare(queue)
        outgoing = Outgoing("", queue, _PROPERTIES, encode(note))
        try:
            await self._publisher.send(outgoing)
        except BridgeError as error:
            if not is_unroutable(error):
                raise
            await self._declare(queue)  # not read for so long that it has expired
            await self._publisher.send(outgoing)

    async def read(self, queue: str) -> AttemptsRecord | None:
        """Return the last note; None: there is none. Raises `BackendUnavailable` or `Refused`."""
        channel = await self._link.channel()
        try:
            body = await _get(channel, queue)
        except DestinationUnknown:
            return None
        finally:
            await channel.close()  # which leaves it where it was
        return None if body is None else decode(body)

    async def _declare(self, queue: str) -> None:
        channel = await self._link.channel()
        try:
            await channel.ask(queue, "queue_declare", queue=queue, durable=True, arguments=_ARGUMENTS)
        finally:
            await channel.close()
        self._declared.add(queue)


class AttemptsWriter:
    """Keeps the note of one partition: lazily while messages are handed out, surely before it is released."""

    def __init__(self, notes: AttemptsStore, queue: str, by: str, unacked: Unacked[Any]) -> None:
        self._notes = notes
        self._queue = queue
        self._by = by
        self._unacked = unacked
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._dirty = False
        """Whether something was handed out while the note was being written."""
        self._written: dict[str, int] | None = None
        """What the note surely says; None: unknown."""

    def changed(self) -> None:
        """Write it soon; no caller waits."""
        if self._writing is not None:
            self._dirty = True
        elif self._timer is None:
            self._timer = self._loop.call_at(max(self._loop.time() + _SOON, self._not_before), self._begin)

    async def read(self) -> AttemptsRecord | None:
        """Return what the note says. Raises `BackendUnavailable` or `Refused`."""
        return await self._notes.read(self._queue)

    async def finish(self) -> None:
        """Write it for the next holder, if there is anything to say. Waits a while at most, and does not raise."""
        writing = self.stop()
        if writing is not None:
            await asyncio.wait((writing,))
        if self._unacked.unacknowledged and not self._unacked.attempts_known:
            await self._learn()
        # also where nothing was handed out: without a note the broker's count would be taken for it
        if (
            self._unacked.attempts_known
            and self._unacked.unacknowledged
            and self._written != self._unacked.attempts_record()
        ):
            await self._write()

    async def _learn(self) -> None:
        """Look at the note that is about to be replaced: nothing that has come made it necessary before."""
        with suppress(BridgeError, TimeoutError):
            async with asyncio.timeout(_TIMEOUT):
                note = await self.read()
            mine = note is None or note.by == self._by
            self._unacked.set_attempts(
                note.attempts if note is not None and not mine else None if self._unacked.attempts_missing else {}
            )

    def stop(self) -> asyncio.Task[None] | None:
        """Write nothing more; returns what is being cancelled."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            self._writing.cancel()
        return self._writing

    def _begin(self) -> None:
        self._timer = None
        if self._unacked.attempts:  # else all has been settled meanwhile
            self._writing = self._loop.create_task(self._write())

    async def _write(self) -> None:
        attempts = self._unacked.attempts_record()
        self._written, self._dirty = None, False
        try:
            async with asyncio.timeout(_TIMEOUT):
                await self._notes.write(self._queue, AttemptsRecord(self._by, attempts))
        except (BridgeError, TimeoutError) as error:
            _log.info("%s: delivery counts were not recorded: %s", self._queue, error)
        else:
            self._written = attempts
        self._writing = None
        self._not_before = self._loop.time() + _GAP
        if self._dirty:
            self.changed()


async def _get(channel: Channel, queue: str) -> bytes | None:
    """Return the body of the first message of a queue, None if it is empty."""
    got: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

    def done(body: bytes | None) -> None:
        if not got.done():
            got.set_result(body)

    def message(_raw: object, _method: object, _properties: object, body: bytes) -> None:
        done(body)

    channel.raw.add_callback(lambda _frame: done(None), [Basic.GetEmpty])
    channel.raw.basic_get(queue, message)
    waits: set[asyncio.Future[Any]] = {got, channel.ended}
    await asyncio.wait(waits, timeout=REQUEST_TIMEOUT / 1000, return_when=asyncio.FIRST_COMPLETED)
    if got.done():
        return got.result()
    got.cancel()
    if channel.ended.done():
        raise of_channel(channel.ended.result(), queue)
    raise BackendUnavailable(f"{queue}: RabbitMQ does not answer.")
