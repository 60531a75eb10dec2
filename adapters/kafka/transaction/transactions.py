"""Transactions of all bridges of an instance; see `Transactional`.

The place of an entry in the topic decides, so that all bridges come to the same result. A commit first claims the
transaction: one bridge at a time writes its messages. If that bridge is gone, another one fences it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from adapters.base import Complete, Stored, Transaction, TransactionState
from adapters.kafka.mapping import Outgoing
from adapters.kafka.topics import Cluster
from adapters.kafka.transaction.group_commit import CommitFailed, GroupCommit
from adapters.kafka.transaction.table import Entry, Kind, Verdict, control, prepared
from adapters.kafka.transaction.topic import TransactionTopic
from adapters.shared_calls import SharedCalls
from adapters.wall_clock import wall
from bridge.errors import (
    BackendFull,
    BackendUnavailable,
    BridgeError,
    OutcomeUnknown,
    TransactionEnded,
    TransactionUnknown,
)
from bridge.message import Message

_T = TypeVar("_T")

PREPARED_MAX: Final = 1 << 30
"""Bytes of the messages of open transactions of all bridges, about: each bridge reads them when it starts."""
_PATIENCE: Final = 5.0
"""Seconds after which a bridge that has claimed a transaction and does not end it is fenced."""


class Transactions:
    """Prepares, commits and rolls back."""

    def __init__(self, cluster: Cluster, to_outgoing: Callable[[Message], Awaitable[Outgoing]]) -> None:
        """`to_outgoing` returns the record of a complete message: for its destination, or for a delay topic."""
        self._own = cluster.options.prefix
        self._to_outgoing = to_outgoing
        self._topic = TransactionTopic(cluster, self._fence_others)
        self.start = self._topic.start
        self._group = GroupCommit(cluster.options)
        self._ending: SharedCalls[str, Any] = SharedCalls()
        """Commits and rollbacks that run, by transaction."""
        self._retiring: SharedCalls[str, None] = SharedCalls()

    def gauges(self) -> Mapping[str, int]:
        """Return the bytes of prepared messages: of all bridges, and those kept here."""
        return {"prepared_bytes": self._topic.table.size, "prepared_held_bytes": self._topic.table.held}

    def known(self) -> Mapping[str, Transaction]:
        """See `Transactional.known_transactions`."""
        if not self._topic.started:
            raise BackendUnavailable("The transactions have not been read yet.")
        return self._topic.table.known

    async def prepare(self, transaction: Transaction, message: Message) -> None:
        """See `Transactional`. Raises also `Refused` if the bridge's user may not write or create the topic."""
        await self._topic.read(create=True)
        self._check_open(transaction.id)
        if self._topic.table.size + message.size > PREPARED_MAX:
            raise BackendFull(f"The open transactions of all bridges have {self._topic.table.size} bytes.")
        entry = self._topic.entry(Kind.PREPARED, transaction.id)
        record = prepared(self._topic.name, entry, transaction, message, wall())
        verdict = await self._topic.append(entry, record)
        if verdict is Verdict.BLOCKED:
            await self._until_released(transaction.id)
        if verdict is Verdict.ENDED or entry.token in self._topic.table.left_out.get(transaction.id, ()):
            self._check_open(transaction.id)

    async def commit(self, name: str, complete: Complete) -> Sequence[Stored | None]:
        """See `Transactional`."""
        return await self._end(name, lambda: self._commit(name, complete))

    async def rollback(self, name: str) -> None:
        """See `Transactional`."""
        await self._end(name, lambda: self._rollback(name))

    async def close(self) -> None:
        """Finish the commits that run, and disconnect. Idempotent."""
        await self._ending.close(_PATIENCE)
        await self._retiring.close()
        await self._group.close()
        await self._topic.close()

    async def _end(self, name: str, ending: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a commit or rollback to its end, even if the caller no longer waits; one at a time of a transaction."""
        if not await self._topic.read(create=False):
            raise TransactionUnknown.of(name)
        while (earlier := self._ending.running(name)) is not None:
            await asyncio.wait([earlier])
        result: _T = await self._ending.run(name, ending)
        return result

    async def _commit(self, name: str, complete: Complete) -> Sequence[Stored | None]:
        alone = False
        while not self._has_ended(name, TransactionState.COMMITTED):
            writer = await self._group.writer()
            await self._ask(self._topic.entry(Kind.CLAIMED, name, writer))
            if self._topic.table.owner(name) != writer:
                continue
            try:
                messages = await complete(await self._topic.messages(name))
                records = [await self._to_outgoing(message) for message in messages if message is not None]
            except BaseException:
                with contextlib.suppress(BridgeError):
                    await self._topic.append(self._topic.entry(Kind.RELEASED, name, writer))
                raise
            entry = self._topic.entry(Kind.COMMITTED, name, writer)
            verdict = self._topic.expect(entry)
            try:
                places = await self._write(entry, verdict, records, alone=alone)
            except CommitFailed as failed:
                await self._find_out(writer, failed)
                if not verdict.done():
                    if failed.alone and self._topic.table.known[name].state is TransactionState.OPEN:
                        raise failed.error from failed
                    alone = True
                    continue
                places = [Stored(None, None) for _ in records]
            finally:
                verdict.cancel()
            rest = iter(places)
            return [None if message is None else next(rest) for message in messages]
        return ()

    async def _write(
        self, entry: Entry, verdict: asyncio.Future[Verdict], records: Sequence[Outgoing], *, alone: bool
    ) -> list[Stored]:
        """Store the records and the end of the transaction, and wait until the table has it. Raises `CommitFailed`."""
        marker = control(self._topic.name, entry, wall())
        stored = await self._group.commit(entry.writer, [*records, marker], alone=alone)
        await asyncio.wait([verdict], timeout=_PATIENCE)  # it is committed, even if the reader has no connection
        places = zip(records, stored, strict=False)
        return [Stored(None, None) if record.topic.startswith(self._own) else place for record, place in places]

    async def _find_out(self, writer: str, failed: CommitFailed) -> None:
        """Retire a writer that has failed: after that, everything it has committed has been read."""
        try:
            await self._retire(writer)
        except BridgeError as error:
            if failed.ending:
                raise OutcomeUnknown(f"Kafka does not say whether it committed: {failed}.") from error
            raise BackendUnavailable(f"Kafka does not commit now: {failed}.") from error

    async def _rollback(self, name: str) -> None:
        while not self._has_ended(name, TransactionState.ROLLED_BACK):
            current = self._group.current
            if current is not None and self._topic.table.owner(name) == current:  # of a commit that has failed
                await self._topic.append(self._topic.entry(Kind.RELEASED, name, current))
            await self._ask(self._topic.entry(Kind.ROLLED_BACK, name))

    async def _ask(self, entry: Entry) -> None:
        """Append an entry that is to end a transaction; if another one does, wait. Raises `TransactionUnknown`."""
        verdict = await self._topic.append(entry)
        if verdict is Verdict.UNKNOWN:
            raise TransactionUnknown.of(entry.id)
        if verdict is Verdict.BLOCKED:
            await self._until_released(entry.id)

    def _has_ended(self, name: str, state: TransactionState) -> bool:
        """Return whether it has ended so. Raises `TransactionEnded` if it has ended otherwise."""
        known = self._topic.table.known.get(name)
        if known is not None and known.state is not state:
            self._check_open(name)
        return known is not None and known.state is state

    def _check_open(self, name: str) -> None:
        known = self._topic.table.known.get(name)
        if known is not None and known.state is not TransactionState.OPEN:
            raise TransactionEnded.of(name, known.state)

    async def _until_released(self, name: str) -> None:
        """Wait until no bridge is committing a transaction. A bridge that takes too long is fenced."""
        loop = asyncio.get_running_loop()
        earlier, until = None, 0.0
        while (owner := self._topic.table.owner(name)) is not None:
            if owner != earlier:
                earlier, until = owner, loop.time() + _PATIENCE
            elif loop.time() >= until:
                await self._retire(owner)
            await self._topic.changed(until)

    async def _retire(self, writer: str) -> None:
        """Fence a writer, and report it to all bridges."""
        await self._retiring.run(writer, partial(self._fence, writer))

    async def _fence(self, writer: str) -> None:
        await self._group.fence(writer)
        await self._topic.append(self._topic.entry(Kind.RETIRED, writer=writer))

    async def _fence_others(self) -> None:
        """End open transactions of other bridges: no record behind them in the topic can be read until then."""
        for writer in self._topic.table.owners:
            if self._group.is_own(writer) and self._group.current is not None:
                continue  # it is the current one, or was fenced by that
            if self._retiring.running(writer) is None:
                with contextlib.suppress(BridgeError):
                    await self._group.fence(writer)
