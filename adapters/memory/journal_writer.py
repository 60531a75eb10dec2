"""The journal's writer: a thread that owns the connection and commits one batch after the other."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Final, NamedTuple

from adapters.memory.journal_batch import Batch, write_messages, write_state
from adapters.memory.journal_directory import JournalDirectory
from adapters.memory.journal_schema import checksum
from bridge.errors import BackendFull, BackendUnavailable, BridgeError, OutcomeUnknown

QUEUE_MESSAGES: Final = 65_536
QUEUE_BYTES: Final = 64 << 20
"""Messages, and bytes of them, that may wait for the disk."""


class CommitResult(NamedTuple):
    """The result of a batch: None means committed."""

    messages: BridgeError | None
    """Of its messages."""
    state: BridgeError | None
    """Of settlements, groups and metadata."""


class _Failure(NamedTuple):
    """Why a transaction failed, and whether it is certain that it was not committed."""

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


class JournalWriter:
    """Commits batches; changes that arrive during one commit are written with the next.

    Its state belongs to the event loop, except the connection; the thread gets a batch only once it is complete.
    """

    def __init__(
        self,
        directory: JournalDirectory,
        connection: sqlite3.Connection,
        commits: int,
        done: Callable[[Batch, CommitResult], None],
    ) -> None:
        self.batch = Batch()
        """The changes for the next commit. They are committed after the next call of `flush`."""
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

    def check_space(self) -> None:
        """Raise `BackendFull` if too many messages wait for the disk."""
        writing = self._writing
        messages, size = self.batch.waiting_messages, self.batch.bytes
        if writing is not None:
            messages, size = messages + writing.waiting_messages, size + writing.bytes
        if messages >= QUEUE_MESSAGES or size >= QUEUE_BYTES:
            raise BackendFull(
                f"{messages} messages with {size} bytes wait for the journal's disk;"
                f" at most {QUEUE_MESSAGES} with {QUEUE_BYTES} may."
            )

    def flush(self) -> None:
        """Commit after this turn of the loop, or after the commit that is under way."""
        if not self._scheduled and self._writing is None:
            self._scheduled = True
            self._loop.call_soon(self._submit)

    async def close(self) -> None:
        """Commit what is queued, trying once, then end the thread and close the files. Idempotent."""
        self._failed = False
        while (self._writing is not None or self.batch) and not (self._failed or self._stopped.done()):
            self._idle.clear()
            self.flush()
            await self._idle.wait()
        self._queue.put(None)
        await asyncio.shield(self._stopped)

    def _submit(self) -> None:
        self._scheduled = False
        if self._writing is None and self.batch:
            self._writing, self.batch = self.batch, Batch()
            self._queue.put(self._writing)

    def _written(self, batch: Batch, result: CommitResult) -> None:
        self._writing = None
        self._failed = result.state is not None
        if result.messages is not None:
            self.batch.mark_unused(batch.messages)
        if self._failed:
            self.batch.take_over(batch)  # tried again with the next batch that a call waits for
        if not self._failed or self.batch.awaited:
            self._submit()  # first, so that the disk works while the callers of this batch are answered
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
                break  # the loop was closed without closing the adapter: everything confirmed is on disk
        self._connection.close()
        self._directory.close()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopped.set_result, None)

    def _write(self, batch: Batch) -> CommitResult:
        """Commit a batch; if that fails, commit it without its messages.

        A full disk refuses messages, but not the settlements and deletions that free space again. A successful commit
        also overwrites what the failed one may have left in the log: after it, the messages are certainly not stored.
        """
        failure = self._transact(batch)
        if failure is None:
            return CommitResult(None, None)
        again = self._transact(batch, messages=False)
        if again is None:
            return CommitResult(failure.translate(certain=True), None)
        certain = failure.certain and again.certain
        return CommitResult(failure.translate(certain=certain), again.translate(certain=certain))

    def _transact(self, batch: Batch, *, messages: bool = True) -> _Failure | None:
        connection, commits = self._connection, self._commits + 1
        certain = True
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            if messages:
                write_messages(connection, batch)
            write_state(connection, batch)
            connection.execute(
                "UPDATE meta SET value=?, crc=? WHERE name='commits'", (commits, checksum("commits", commits))
            )
            certain = False
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever the error is, the waiting calls must get it
            with suppress(sqlite3.Error):  # if this fails, it is repeated before the next transaction
                connection.execute("ROLLBACK")
            failure = _Failure(error, certain)
            # a full disk fails a write, and the frame that completes a commit is the last one written
            return failure._replace(certain=certain or failure.full)
        self._commits = commits
        self._confirm()
        return None

    def _confirm(self) -> None:
        # With an older number the next start detects fewer lost commits. The commit itself is on disk.
        with suppress(OSError):
            self._directory.confirm(self._commits)
