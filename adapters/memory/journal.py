"""The journal's one writer: a thread that owns the connection and commits batch after batch."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Final, NamedTuple

from adapters.memory.batch import Batch, Store, write_rest, write_stores
from adapters.memory.files import Directory
from adapters.memory.schema import checksum
from bridge.errors import BackendFull, BackendUnavailable, BridgeError, OutcomeUnknown

QUEUE_MESSAGES: Final = 65_536
QUEUE_BYTES: Final = 64 << 20
"""Messages, and bytes of them, that may wait for the disk."""


class Result(NamedTuple):
    """What became of a batch: None is committed."""

    stores: BridgeError | None
    rest: BridgeError | None


class _Failure(NamedTuple):
    """Why a transaction was not committed, and whether that is certain."""

    error: Exception
    certain: bool

    @property
    def full(self) -> bool:
        return getattr(self.error, "sqlite_errorcode", -1) == sqlite3.SQLITE_FULL

    def translate(self, *, certain: bool) -> BridgeError:
        if not certain:
            return OutcomeUnknown(f"The journal's commit failed: {self.error}.")
        if self.full:
            return BackendFull("The journal's disk is full.")
        return BackendUnavailable(f"The journal cannot be written: {self.error}.")


class Journal:
    """Takes batches from the event loop and commits them, everything that came during one commit with the next.

    All of its state but the connection belongs to the event loop; the thread sees a batch only once it is complete.
    """

    def __init__(
        self,
        directory: Directory,
        connection: sqlite3.Connection,
        commits: int,
        done: Callable[[Batch, Result], None],
    ) -> None:
        self.batch = Batch()
        """What the next commit will hold. Whoever adds to it calls `flush`, or lets it wait for the next who does."""
        self._directory = directory
        self._connection = connection
        self._commits = commits
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._writing: Batch | None = None
        self._scheduled = False
        self._failed = False
        self._idle = asyncio.Event()
        self._queue: SimpleQueue[Batch | None] = SimpleQueue()
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        Thread(target=self._write_batches, name="oms-journal", daemon=True).start()

    def check_room(self) -> None:
        """Raise `BackendFull` when too much waits for the disk."""
        writing = self._writing
        messages, size = len(self.batch.stores), self.batch.bytes
        if writing is not None:
            messages, size = messages + len(writing.stores), size + writing.bytes
        if messages >= QUEUE_MESSAGES or size >= QUEUE_BYTES:
            raise BackendFull(
                f"{messages} messages with {size} bytes wait for the journal's disk;"
                f" at most {QUEUE_MESSAGES} with {QUEUE_BYTES} may."
            )

    def flush(self) -> None:
        """Commit once this turn of the loop is over, or when the commit under way is."""
        if not self._scheduled and self._writing is None:
            self._scheduled = True
            self._loop.call_soon(self._hand_over)

    async def close(self) -> None:
        """Commit what is queued, trying once, then end the thread and let go of the files. Idempotent."""
        self._failed = False
        while (self._writing is not None or self.batch) and not (self._failed or self._stopped.done()):
            self._idle.clear()
            self.flush()
            await self._idle.wait()
        self._queue.put(None)
        await asyncio.shield(self._stopped)

    def _hand_over(self) -> None:
        self._scheduled = False
        if self._writing is None and self.batch:
            self._writing, self.batch = self.batch, Batch()
            self._queue.put(self._writing)

    def _written(self, batch: Batch, result: Result) -> None:
        self._writing = None
        self._failed = result.rest is not None
        if result.stores is not None:
            self.batch.skip(batch.stores)
        if self._failed:
            self.batch.inherit(batch)  # tried again with the next batch that somebody waits for
        if not self._failed or self.batch.awaited:
            self._hand_over()  # first, so that the disk works while this batch is answered
        self._done(batch, result)
        if self._writing is None and not self._scheduled:
            self._idle.set()

    # In the thread

    def _write_batches(self) -> None:
        while (batch := self._queue.get()) is not None:
            result = self._write(batch)
            try:
                self._loop.call_soon_threadsafe(self._written, batch, result)
            except RuntimeError:
                break  # the loop was closed without closing the adapter: what was confirmed is on disk
        self._connection.close()
        self._directory.close()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopped.set_result, None)

    def _write(self, batch: Batch) -> Result:
        """Commit a batch; if that fails, commit it without its messages.

        A full disk keeps messages out, but not the settlements and deletions that make room again. And a commit that
        succeeds overwrites what a failed one may have left in the log: after it, the messages are certain not to be
        stored.
        """
        failure = self._transact(batch, batch.stores)
        if failure is None:
            return Result(None, None)
        again = self._transact(batch, [])
        if again is None:
            return Result(failure.translate(certain=True), None)
        certain = failure.certain and again.certain
        return Result(failure.translate(certain=certain), again.translate(certain=certain))

    def _transact(self, batch: Batch, stores: list[Store]) -> _Failure | None:
        connection, commits = self._connection, self._commits + 1
        certain = True
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            write_stores(connection, stores)
            write_rest(connection, batch)
            connection.execute(
                "UPDATE meta SET value=?, crc=? WHERE name='commits'", (commits, checksum("commits", commits))
            )
            certain = False
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            with suppress(sqlite3.Error):  # else before the next transaction
                connection.execute("ROLLBACK")
            failure = _Failure(error, certain)
            # a full disk fails a write, and the frame that makes a commit is the last one written
            return failure._replace(certain=certain or failure.full)
        self._commits = commits
        self._confirm()
        return None

    def _confirm(self) -> None:
        with suppress(OSError):  # an older number only claims less; the commit itself is on disk
            self._directory.confirm(self._commits)
