"""Prepares, commits and rolls back, and finishes commits of bridges that have ended. See `Transactional`.

A commit is decided when its record is read from the stream: no other end counts then. The messages are published after
that. When all are confirmed, the record `stored` follows. If the bridge ends before, another one, or the same after its
start, takes the commit over and publishes all messages again.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.amqp.properties import Properties
from adapters.amqp.settings import REQUEST_TIMEOUT
from adapters.base import Complete, Stored, Transaction, TransactionState
from adapters.rabbitmq.group.membership import Bridges
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology.catalogue import Catalogue
from adapters.rabbitmq.topology.declarations import perform, stream
from adapters.rabbitmq.topology.names import Own
from adapters.rabbitmq.topology.shared_log import READ, SharedLog
from adapters.rabbitmq.transaction import ledger
from adapters.rabbitmq.transaction.ledger import LOG_BYTES, Ledger, Unfinished, encode
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

_TIMEOUT: Final = REQUEST_TIMEOUT / 1000
_CHECK_INTERVAL: Final = (4.0, 6.0)
"""Seconds between two checks for commits to finish, with jitter: bridges do not all check at once."""
_SHARE: Final = 4
"""Unfinished transactions take at most a fourth of the stream: their copies must fit in beside new records."""

_log = logging.getLogger("bridge.rabbitmq")


class Dependencies(NamedTuple):
    """The parts of the adapter that transactions use."""

    declaring: Link
    consuming: Link
    publisher: Publisher
    catalogue: Catalogue
    bridges: Bridges
    publish: Callable[[Sequence[Message]], Awaitable[Sequence[Stored | BaseException]]]
    """Publishes messages in order. Raises a `BridgeError` if nothing was published."""


class Transactions:
    """The transactions of a prefix. Their stream is declared for the first prepared message."""

    def __init__(self, prefix: str, use: Dependencies) -> None:
        self._use = use
        self._declaration = stream(Own(prefix).transactions, LOG_BYTES)
        self._log = SharedLog(
            self._declaration,
            use.consuming,
            use.publisher,
            Ledger,
            lambda state, name, _, record: state.read(name, record),
        )
        self._opening = asyncio.Lock()
        self._checking: asyncio.Task[None] | None = None
        self._storing: dict[str, asyncio.Task[list[Stored | None]]] = {}
        """Commits that this bridge is storing."""

    @property
    def _ledger(self) -> Ledger:
        return self._log.state

    async def start(self) -> None:
        """Read the stream if there is one. Raises `BackendUnavailable` or `Refused`; may be called again then."""
        if self._use.catalogue.contents.transactions:
            await self._open()
        if self._checking is None:
            self._checking = asyncio.create_task(self._check_repeatedly())

    async def close(self) -> None:
        """Store committed messages, at most `_TIMEOUT`. Idempotent."""
        checking, self._checking = self._checking, None
        if checking is not None:
            checking.cancel()
            tasks = [checking, *self._storing.values()]
            await asyncio.wait(tasks, timeout=_TIMEOUT)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await self._log.close()

    def known(self) -> Mapping[str, Transaction]:
        """See `Transactional.known_transactions`."""
        if self._checking is None:
            raise BackendUnavailable("The bridge's stream of transactions has not been read yet.")
        return self._ledger.transactions

    def gauges(self) -> Mapping[str, int]:
        """Return the bytes of prepared messages, of all bridges."""
        return {"prepared_bytes": self._ledger.size}

    async def prepare(self, transaction: Transaction, message: Message) -> None:
        """See `Transactional`."""
        await self._open()
        await self._log.restored()
        known = self._ledger.transactions.get(transaction.id)
        if known is not None and known.state is not TransactionState.OPEN:
            raise TransactionEnded.of(known.id, known.state)
        if self._ledger.size + message.size > LOG_BYTES // _SHARE:
            raise BackendFull(f"The open transactions of all bridges have {self._ledger.size} bytes.")
        if not await self._write(*ledger.prepared(transaction, message, wall())):
            raise TransactionEnded.of(transaction.id, self._ledger.transactions[transaction.id].state)

    async def commit(self, name: str, complete: Complete) -> Sequence[Stored | None]:
        """See `Transactional`."""
        while (await self._known(name)).state is TransactionState.OPEN:
            unfinished = self._ledger.unfinished[name]
            prepared = unfinished.messages()
            pairs = zip(prepared, await complete(prepared), strict=True)
            changes = [ledger.changes(before, after) for before, after in pairs]
            if await self._write(encode("commit", name, await self._use.bridges.own_queue(), changes)):
                return await self._stored(self._store_once(name, unfinished))
        known = self._ledger.transactions[name]
        if known.state is TransactionState.ROLLED_BACK:
            raise TransactionEnded.of(known.id, known.state)
        await self._finished(name)
        return ()

    async def rollback(self, name: str) -> None:
        """See `Transactional`."""
        while (known := await self._known(name)).state is TransactionState.OPEN:
            await self._write(encode("rollback", name))
        if known.state is TransactionState.COMMITTED:
            raise TransactionEnded.of(known.id, known.state)

    async def _known(self, name: str) -> Transaction:
        """Return a transaction, perhaps one of another bridge. Raises `TransactionUnknown` or `BackendUnavailable`."""
        await self._log.restored()
        if (known := self._ledger.transactions.get(name)) is None:
            await self._use.catalogue.catch_up()
            if self._use.catalogue.contents.transactions:
                await self._open()
                await self._log.enter(READ)
            if (known := self._ledger.transactions.get(name)) is None:
                raise TransactionUnknown.of(name)
        return known

    async def _open(self) -> None:
        """Declare the stream, and read it."""
        if self._log.started:
            return
        async with self._opening:
            # under a lock: a second declaration of a stream that is being declared ends a connection (541)
            catalogue, name = self._use.catalogue, f"{self._log.name}.setup"
            await catalogue.once(self._use.declaring, name, lambda: catalogue.contents.transactions, self._declare)
            await self._log.start()

    async def _declare(self, locked: Channel) -> None:
        await perform(locked, self._log.name, [self._declaration])
        await self._use.catalogue.enter("transactions")

    async def _write(self, record: bytes, properties: Properties | None = None) -> bool:
        """Write a record; return whether it counts. Raises as `Transactional.prepare`."""
        counts = await self._log.write(record, properties)
        if counts is None:
            raise OutcomeUnknown(f"{self._log.name}: the stream cannot be read at the moment.")
        return counts

    def _store_once(self, name: str, unfinished: Unfinished) -> "asyncio.Task[list[Stored | None]]":
        """Store a commit of this bridge, unless that is under way."""
        storing = self._storing.get(name)
        if storing is None:
            storing = asyncio.create_task(self._store(name, self._ledger.unfinished.get(name, unfinished)))
            self._storing[name] = storing
            storing.add_done_callback(lambda done: self._has_stored(name, done))
        return storing

    async def _stored(self, storing: "asyncio.Task[list[Stored | None]]") -> list[Stored | None]:
        """Wait until a commit is stored. Raises `OutcomeUnknown`; it is tried again then."""
        try:
            return await asyncio.shield(storing)
        except BridgeError as error:
            raise OutcomeUnknown(f"{error.detail} The transaction is committed; this is repeated.") from error

    async def _store(self, name: str, unfinished: Unfinished) -> list[Stored | None]:
        completed = unfinished.completed()
        left = {at: each for at, each in enumerate(completed) if each is not None and at not in unfinished.stored}
        errors = []
        for at, result in zip(left, await self._use.publish(list(left.values())), strict=True):
            if isinstance(result, BaseException):
                errors.append(result)
            else:
                unfinished.stored[at] = result
        if errors:
            raise errors[0]
        await self._log.write(encode("stored", name))
        return [unfinished.stored.get(at) for at in range(len(completed))]

    def _has_stored(self, name: str, storing: "asyncio.Task[list[Stored | None]]") -> None:
        del self._storing[name]
        error = None if storing.cancelled() else storing.exception()
        if error is not None:
            _log.warning("a committed transaction is not stored yet: %s", error, extra={"transaction": name})

    async def _finished(self, name: str) -> None:
        """Wait until a commit is stored, here or by another bridge. Raises `OutcomeUnknown`."""
        try:
            async with asyncio.timeout(_TIMEOUT):
                if (storing := await self._finish(name)) is not None:
                    await self._stored(storing)
                await self._log.until(lambda: name not in self._ledger.unfinished)
        except (BackendUnavailable, TimeoutError) as error:
            raise OutcomeUnknown(f"The transaction {name[:300]!a} is committed, and not stored yet.") from error

    async def _finish(self, name: str) -> "asyncio.Task[list[Stored | None]] | None":
        """Store a commit of this bridge, or of a bridge that has ended."""
        unfinished = self._ledger.unfinished.get(name)
        if unfinished is None or (before := unfinished.bridge) is None:
            return None
        if not self._use.bridges.is_own(before):
            if not await self._use.bridges.has_ended(before):
                return None
            if not await self._write(encode("take", name, before, await self._use.bridges.own_queue())):
                return None
        return self._store_once(name, unfinished)

    async def _check_repeatedly(self) -> None:
        while True:
            try:
                await self._check()
            except BridgeError as error:
                _log.warning("unfinished transactions could not be checked: %s", error)
            await asyncio.sleep(random.uniform(*_CHECK_INTERVAL))  # noqa: S311 - no secret

    async def _check(self) -> None:
        """Finish commits, copy unfinished transactions before the stream drops them, and list ended ones again."""
        if self._use.catalogue.contents.transactions:
            await self._open()
        await self._log.restored()
        for name in list(self._ledger.unfinished):
            await self._finish(name)
        for name in self._ledger.aged():
            if name in self._ledger.unfinished:
                await asyncio.gather(*(self._log.write(*copy) for copy in self._ledger.copies(name)))
        for listing in self._ledger.listings():
            await self._log.write(listing)
