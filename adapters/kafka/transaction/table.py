"""The transactions as the topic says, record by record: every bridge comes to the same result. Pure.

A transaction is committed by the bridge whose claim is the first that is neither released nor retired. Messages behind
a claim are part of the transaction only if the claim does not lead to a commit. What ended is remembered by the times
of the records, not by a clock, so the bridges forget the same.
"""

from collections import OrderedDict
from enum import Enum, auto
from typing import Final, NamedTuple

from adapters.base import ENDED_MAX, Transaction, TransactionState
from adapters.kafka.record import Record
from adapters.kafka.transaction.entries import Entry, Kind, ended_of, message_of, transaction_of
from bridge.message import Message

_REMEMBERED: Final = 3_600_000
"""Milliseconds."""


class Verdict(Enum):
    """What an entry has brought about."""

    DONE = auto()
    BLOCKED = auto()
    """Another writer has claimed the transaction."""
    ENDED = auto()
    UNKNOWN = auto()


class _Prepared(NamedTuple):
    entry: Entry
    record: Record


class _Open:
    """A transaction that has not ended."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        """Of its first record."""
        self.prepared: list[_Prepared] = []
        self.owner: str | None = None
        self.claimed = 0
        """Number of messages before the owner's claim."""


class TransactionTable:
    """`apply` takes every committed record, in order."""

    def __init__(self) -> None:
        self.known: dict[str, Transaction] = {}
        """By id: open, and ended lately."""
        self.next = 0
        """The offset after the last record."""
        self.unlisted = 0
        """Records since the ended transactions were listed."""
        self._open: dict[str, _Open] = {}
        self._ended: OrderedDict[str, int] = OrderedDict()

    @property
    def low(self) -> int:
        """The offset below which no record is needed, except for what has ended."""
        return min((each.offset for each in self._open.values()), default=self.next)

    @property
    def ended(self) -> list[tuple[Transaction, int]]:
        """Transactions that have ended, each with the time in ms since 1970."""
        return [(self.known[name], at) for name, at in self._ended.items()]

    @property
    def owners(self) -> set[str]:
        """Writers with a claim."""
        return {each.owner for each in self._open.values() if each.owner is not None}

    def owner(self, name: str) -> str | None:
        """Return the writer that commits a transaction now."""
        found = self._open.get(name)
        return None if found is None else found.owner

    def messages(self, name: str) -> list[Message]:
        """Return the messages that the owner of a transaction is to commit."""
        found = self._open[name]
        return [message_of(*each) for each in found.prepared[: found.claimed]]

    def apply(self, entry: Entry, record: Record) -> Verdict:
        """Take a record and return what it has brought about."""
        self._forget(record.timestamp)
        self.next = record.offset + 1
        self.unlisted += 1
        match entry.kind:
            case Kind.RETIRED:
                for each in self._open.values():
                    self._release(each, entry.writer)
            case Kind.ENDED:
                self.unlisted = 0
                for transaction, at in ended_of(record):
                    self._end(transaction, at)
            case Kind.PREPARED if entry.id not in self.known:
                self.known[entry.id] = transaction_of(entry)
                self._open[entry.id] = _Open(record.offset)
                return self._prepare(self._open[entry.id], entry, record)
            case _:
                return self._of_known(entry, record)
        return Verdict.DONE

    def _of_known(self, entry: Entry, record: Record) -> Verdict:
        transaction, found = self.known.get(entry.id), self._open.get(entry.id)
        if transaction is None or found is None:
            return Verdict.UNKNOWN if transaction is None else Verdict.ENDED
        match entry.kind:
            case Kind.PREPARED:
                return self._prepare(found, entry, record)
            case Kind.CLAIMED:
                if found.owner is None:
                    found.owner, found.claimed = entry.writer, len(found.prepared)
                return Verdict.DONE if found.owner == entry.writer else Verdict.BLOCKED
            case Kind.RELEASED:
                self._release(found, entry.writer)
            case Kind.ROLLED_BACK if found.owner is not None:
                return Verdict.BLOCKED
            case Kind.COMMITTED | Kind.ROLLED_BACK:
                self._end(transaction._replace(state=TransactionState(entry.kind)), record.timestamp)
        return Verdict.DONE

    def _prepare(self, found: _Open, entry: Entry, record: Record) -> Verdict:
        found.prepared.append(_Prepared(entry, record))
        before = self.known[entry.id]
        self.known[entry.id] = before._replace(messages=before.messages + 1, size=before.size + entry.details[-1])
        return Verdict.DONE if found.owner is None else Verdict.BLOCKED

    def _release(self, found: _Open, writer: str) -> None:
        if found.owner == writer:
            found.owner = None

    def _end(self, transaction: Transaction, at: int) -> None:
        self._open.pop(transaction.id, None)
        self.known[transaction.id] = transaction
        self._ended[transaction.id] = at

    def _forget(self, now: int) -> None:
        while self._ended:
            name, at = next(iter(self._ended.items()))
            if at > now - _REMEMBERED and len(self._ended) <= ENDED_MAX:
                break
            del self._ended[name], self.known[name]
