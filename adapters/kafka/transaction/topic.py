"""The topic of transactions. An entry takes effect when it is read again, in its place among those of all bridges."""

import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final
from uuid import uuid4

from adapters.kafka.consume.read_again import ReadAgain
from adapters.kafka.errors import TopicRemoved
from adapters.kafka.log_reader import LogReader
from adapters.kafka.mapping import Outgoing, Part, Record
from adapters.kafka.names import Own
from adapters.kafka.own_topics import TRANSACTIONS
from adapters.kafka.thread_to_loop import cancel
from adapters.kafka.topics import Cluster
from adapters.kafka.transaction.table import (
    Entry,
    Kind,
    TransactionTable,
    Verdict,
    control,
    ended,
    entry_of,
    message_of,
)
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable, BridgeError, OutcomeUnknown
from bridge.message import Message

_LOOK: Final = 10.0
"""Seconds between two looks for the topic, which another bridge may have created."""
_TIDY: Final = 30.0
"""Seconds between two looks at whether old records can be deleted."""
_UNLISTED_MAX: Final = 20_000
"""Records that a start reads, about, beside the list of what has ended. Reading 9,000 took 0.5 s."""
_PATIENCE: Final = 5.0
"""Seconds until an entry that was written and not read is taken for held up by a bridge that was killed."""
_ROUNDS: Final = 4
"""Number of waits of `_PATIENCE` before the outcome of an entry is reported as unknown."""

_log = logging.getLogger("bridge.kafka")


class TransactionTopic:
    """Created with the first prepared message; until then `table` is empty."""

    def __init__(self, cluster: Cluster, on_held_up: Callable[[], Awaitable[None]]) -> None:
        """`on_held_up` is to end transactions of Kafka's that other bridges have left open."""
        self.name = Own(cluster.options.prefix).transactions
        self._own = f"{uuid4().hex}/"
        self.table = TransactionTable(self._own)
        self.started = False
        self.is_read = False
        """Whether the table is up to date."""
        self._cluster = cluster
        self._on_held_up = on_held_up
        self._reader: LogReader | None = None
        self._reading = asyncio.Lock()
        self._upkeep: list[asyncio.Task[None]] = []
        self._tokens = (f"{self._own}{number}" for number in itertools.count())
        self._verdicts: dict[str, asyncio.Future[Verdict]] = {}
        self._changed = asyncio.Event()
        self._again = ReadAgain(cluster.options)

    async def start(self) -> None:
        """Read the topic if it exists. Raises `BackendUnavailable` or `Refused`."""
        await self.read(create=False)
        self.started = True
        if not self._upkeep:
            self._upkeep = [asyncio.create_task(self._tidy_repeatedly()), asyncio.create_task(self._read_repeatedly())]

    async def close(self) -> None:
        """Stop reading. Idempotent."""
        self._again.stop()
        await cancel(self._upkeep)
        await self._stop_reading()

    def entry(self, kind: Kind, transaction: str = "", writer: str = "") -> Entry:
        """Return a new entry."""
        return Entry(kind, transaction, writer, next(self._tokens))

    async def append(self, entry: Entry, record: Outgoing | None = None) -> Verdict:
        """Store an entry, in its record if it has one; return its verdict. Raises as the future of `Publisher.send`."""
        verdict = self.expect(entry)
        try:
            await self._send(control(self.name, entry, wall()) if record is None else record)
            for _ in range(_ROUNDS):
                done, _ = await asyncio.wait([verdict], timeout=_PATIENCE)
                if done:
                    return verdict.result()
                await self._on_held_up()
            raise OutcomeUnknown(f"{self.name}: what was written cannot be read.")
        finally:
            verdict.cancel()

    def expect(self, entry: Entry) -> asyncio.Future[Verdict]:
        """Return the future result of an entry."""
        verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._verdicts[entry.token] = verdict
        verdict.add_done_callback(lambda _: self._verdicts.pop(entry.token))
        return verdict

    async def messages(self, name: str) -> list[Message]:
        """Return the messages that the owner of a transaction is to commit; those of other bridges are read again.

        Raises `BackendUnavailable` or `Refused`.
        """
        claimed = self.table.claimed(name)
        records = {each.offset: each.record for each in claimed if each.record is not None}
        missing = [each.offset for each in claimed if each.record is None]
        if missing:
            read = await self._again.read({Part(self.name, 0): missing})
            records |= {record.offset: record for record in read}
        if len(records) < len(claimed):
            raise BackendUnavailable(f"{self.name}: Kafka no longer has all messages of the transaction.")
        return [message_of(records[each.offset]) for each in claimed]

    async def changed(self, until: float) -> None:
        """Wait until entries have been read, or until a time of the loop's clock."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._changed.wait()

    async def read(self, *, create: bool) -> bool:
        """Bring the table up to date. Returns whether there is a topic. Raises `BackendUnavailable` or `Refused`."""
        async with self._reading:
            if self.is_read:
                return True
            if create:
                await self._cluster.topics.ensure(self.name, 1, TRANSACTIONS)
            elif await self._cluster.publisher.partitions(self.name) is None:
                return False
            self.table = TransactionTable(self._own)
            failed = partial(_log.warning, "Transactions cannot be read now; the bridge retries. %s")
            self._reader = LogReader(self._cluster.options, Part(self.name, 0), self._take, failed)
            try:
                await asyncio.shield(self._reader.caught_up)
            except BaseException:
                await self._stop_reading()
                raise
            self.is_read = True
            return True

    async def tidy(self) -> None:
        """List the transactions that have ended, and delete the older records. Raises as `append`, and `Refused`."""
        low = self.table.low
        entry = self.entry(Kind.ENDED)
        *others, last = await asyncio.to_thread(ended, self.name, entry, self.table.ended, wall())
        for record in others:  # one by one, so that no bridge has to take all at once
            await self._send(record)
        await self.append(entry, last)
        await self._cluster.admin.delete_records({Part(self.name, 0): low})

    async def _send(self, record: Outgoing) -> None:
        try:
            await self._cluster.publisher.send(record)
        except TopicRemoved:
            await self._stop_reading()
            raise

    def _take(self, records: Sequence[Record]) -> None:
        for record in records:
            try:
                entry = entry_of(record)
                verdict = self.table.apply(entry, record)
            except (ValueError, TypeError, LookupError):
                place = {"topic": record.topic, "offset": record.offset}
                _log.warning("a record is not about a transaction of a bridge", extra=place)
                continue
            waiting = self._verdicts.get(entry.token)
            if waiting is not None and not waiting.done():
                waiting.set_result(verdict)
        self._changed.set()
        self._changed = asyncio.Event()

    async def _stop_reading(self) -> None:
        reader, self._reader = self._reader, None
        self.is_read = False
        if reader is not None:
            await reader.close()

    async def _read_repeatedly(self) -> None:
        """Read the topic if another bridge has created it, also after it was deleted."""
        while True:
            await asyncio.sleep(_LOOK)
            with contextlib.suppress(BridgeError):
                await self.read(create=False)

    async def _tidy_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(_TIDY * random.uniform(0.5, 1.5))  # noqa: S311 - so that one bridge is the first
            if self.table.unlisted > _UNLISTED_MAX:
                try:
                    await self.tidy()
                except BridgeError as error:
                    _log.warning("Records of ended transactions cannot be deleted: %s", error)
