"""The transactions of the memory backend as a data structure. No clock, no I/O."""

import asyncio
from collections import OrderedDict
from typing import Final, NamedTuple

from adapters.base import ENDED_MAX, Transaction, TransactionState
from adapters.memory.record import Record
from bridge.errors import BackendUnavailable, TransactionEnded, TransactionUnknown

_KEPT: Final = 3_600_000
"""Milliseconds for which an ended transaction is remembered."""


class OpenTransaction:
    """A transaction that has not ended, with its messages."""

    __slots__ = ("details", "ending", "prepared", "writing")

    def __init__(self, details: Transaction) -> None:
        self.details = details
        """`messages` and `size` count what is in `prepared`."""
        self.prepared: dict[int, Record] = {}
        """By sequence, in the order of preparing."""
        self.writing = 0
        """Messages that wait for the journal and are not in `prepared` yet."""
        self.ending = asyncio.Lock()
        """Held while the transaction is committed or rolled back."""


class PreparedWrite(NamedTuple):
    """A prepared message to write."""

    transaction: OpenTransaction
    sequence: int
    record: Record
    size: int
    future: asyncio.Future[None]


class TransactionTable:
    """All open transactions, and those that ended lately."""

    def __init__(self) -> None:
        self.known: dict[str, Transaction] = {}
        """By id; an open transaction is known as soon as its first message is stored."""
        self.open: dict[str, OpenTransaction] = {}
        self._ended: OrderedDict[str, int] = OrderedDict()
        """When each ended transaction ended, ms since 1970, in the order of ending. A plain dict takes ever longer to
        find its oldest entry while such entries are removed."""

    @property
    def prepared(self) -> int:
        """Number of prepared messages."""
        return sum(len(each.prepared) for each in self.open.values())

    def begin(self, details: Transaction) -> OpenTransaction:
        """Return the open transaction of an id, or a new one with these details, which is not in the table yet.

        Raises `TransactionEnded`; `BackendUnavailable` while it is being committed or rolled back.
        """
        found = self.open.get(details.id)
        if found is None:
            if known := self.known.get(details.id):
                raise TransactionEnded.of(known.id, known.state)
            return OpenTransaction(details)
        if found.ending.locked():
            raise BackendUnavailable(f"The transaction {details.id[:300]!a} is just being committed or rolled back.")
        return found

    def find(self, name: str, state: TransactionState) -> OpenTransaction | None:
        """Return an open transaction; None: it has ended as `state` says.

        Raises `TransactionEnded` if it ended in the other way, or `TransactionUnknown`.
        """
        found = self.open.get(name)
        if found is None:
            if (known := self.known.get(name)) is None:
                raise TransactionUnknown.of(name)
            if known.state is not state:
                raise TransactionEnded.of(known.id, known.state)
        return found

    def add(self, transaction: OpenTransaction, sequence: int, record: Record, size: int) -> None:
        """Add a message of `size` bytes that is stored."""
        name, state, began, timeout, check, messages, held = transaction.details
        transaction.prepared[sequence] = record
        details = Transaction(name, state, began, timeout, check, messages + 1, held + size)
        transaction.details = self.known[name] = details
        self.open[name] = transaction

    def remove_if_empty(self, transaction: OpenTransaction) -> None:
        """Remove a transaction whose first message could not be stored: it has not begun."""
        if not transaction.prepared and not transaction.writing:
            self.open.pop(transaction.details.id, None)

    def end(self, details: Transaction, state: TransactionState, now: int) -> list[str]:
        """Note how a transaction ended; return the ids of transactions that are forgotten now."""
        name = details.id
        self.open.pop(name, None)
        self.known[name] = Transaction(name, state, details.began, details.timeout, None, messages=0, size=0)
        self._ended[name] = now
        forgotten: list[str] = []
        while (oldest := next(iter(self._ended))) != name and (
            now - self._ended[oldest] > _KEPT or len(self._ended) > ENDED_MAX
        ):
            del self._ended[oldest], self.known[oldest]
            forgotten.append(oldest)
        return forgotten
