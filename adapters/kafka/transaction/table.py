"""The topic of transactions: its records, and the transactions as the records say. Pure.

A record has one entry in a header, and for a prepared message the message. An entry is about one transaction, except
`RETIRED` (about one writer) and `ENDED` (a list in the record's value).

Every bridge applies the same records and comes to the same result. A transaction is committed by the bridge whose claim
is the first that is neither released nor retired. Messages behind a claim are part of the transaction only if the claim
does not lead to a commit. What ended is remembered by the times of the records, not by a clock, so the bridges forget
the same.
"""

import json
from collections import OrderedDict
from collections.abc import Sequence
from enum import Enum, StrEnum, auto
from typing import Any, Final, NamedTuple

from adapters.base import ENDED_MAX, Transaction, TransactionState
from adapters.kafka.mapping import TRANSACTION, Outgoing, Record, from_record, to_record
from bridge.message import Message

_REMEMBERED: Final = 3_600_000
"""Milliseconds."""
HEADERS: Final = 1024
"""Bytes of a prepared message's headers, about."""
_LIST_MAX: Final = 256 * 1024
"""About so many bytes of `ENDED` in one record."""


class Kind(StrEnum):
    """The kinds of entries."""

    PREPARED = "prepared"
    """A message belongs to the transaction."""
    CLAIMED = "claimed"
    """The writer is about to commit the transaction."""
    RELEASED = "released"
    """The writer does not commit it after all."""
    COMMITTED = "committed"
    """The messages are stored. The only entry in a transaction of Kafka's: in that of the messages."""
    ROLLED_BACK = "rolled-back"
    RETIRED = "retired"
    """The writer is fenced: it commits nothing any more."""
    ENDED = "ended"
    """Transactions that have ended, so that older records can be deleted."""


class Entry(NamedTuple):
    """One entry. JSON, for Kafka's own tools show it, and any text of Python's can be written with it."""

    kind: Kind
    id: str = ""
    """Of the transaction."""
    writer: str = ""
    """The name of the writer that claims, commits, or is retired."""
    token: str = ""
    """Identifies the entry for the bridge that wrote it."""
    details: Sequence[Any] = ()


def control(topic: str, entry: Entry, now: int, value: bytes = b"") -> Outgoing:
    """Return the record of an entry without a message; `now` in ms since 1970."""
    return Outgoing(topic, 0, now, None, value, [(TRANSACTION, json.dumps(entry).encode())])


def prepared(topic: str, entry: Entry, transaction: Transaction, message: Message, now: int) -> Outgoing:
    """Return the record of a prepared message."""
    details = (transaction.began, transaction.timeout, transaction.check)
    own = (message.destination, message.partition, message.store_timestamp, message.size)
    record = to_record(message._replace(partition=0, store_timestamp=now), topic)
    header = json.dumps(entry._replace(details=(*details, *own))).encode()
    return record._replace(headers=[*record.headers, (TRANSACTION, header)])


def ended(topic: str, entry: Entry, transactions: Sequence[tuple[Transaction, int]], now: int) -> list[Outgoing]:
    """Return the records that list transactions, each with the time at which it ended; only the last has the token."""
    lists: list[list[str]] = [[]]
    size = 0
    for each, at in transactions:
        row = json.dumps([each.id, each.state, each.began, each.timeout, at])
        size += len(row)
        if size > _LIST_MAX:
            lists.append([])
            size = len(row)
        lists[-1].append(row)
    *others, last = (f"[{','.join(rows)}]".encode() for rows in lists)
    return [
        *(control(topic, entry._replace(token=""), now, value) for value in others),
        control(topic, entry, now, last),
    ]


def entry_of(record: Record) -> Entry:
    """Read the entry of a record. Raises `ValueError` or `TypeError` if the bridge did not write it."""
    found = next((value for name, value in reversed(record.headers) if name == TRANSACTION), b"")
    kind, *rest = json.loads(found)
    return Entry(Kind(kind), *rest)


def message_of(record: Record) -> Message:
    """Return the message of a record as it was prepared."""
    *_, destination, partition, store_timestamp, _ = entry_of(record).details
    return from_record(record, destination)._replace(partition=partition, store_timestamp=store_timestamp)


class Verdict(Enum):
    """The effect of an entry."""

    DONE = auto()
    BLOCKED = auto()
    """Another writer has claimed the transaction."""
    ENDED = auto()
    UNKNOWN = auto()


class Prepared(NamedTuple):
    """A message of an open transaction."""

    token: str
    """Of its entry; an empty string if another bridge wrote it."""
    offset: int
    size: int
    """Bytes on the broker, about."""
    record: Record | None
    """None: another bridge wrote it. To commit it, this bridge reads it again."""


class _Open:
    """A transaction that has not ended."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        """Of its first record."""
        self.prepared: list[Prepared] = []
        self.owner: str | None = None
        self.claimed = 0
        """Number of messages before the owner's claim."""


class TransactionTable:
    """`apply` takes every committed record, in order."""

    def __init__(self, own: str = "") -> None:
        """`own`: how the tokens of this bridge's entries begin; it keeps the messages of those only."""
        self._own = own
        self.size = 0
        """Bytes of the messages of open transactions, of all bridges, with their headers."""
        self.held = 0
        """Bytes of those that are kept here."""
        self.known: dict[str, Transaction] = {}
        """By id: open, and ended lately."""
        self.next = 0
        """The offset after the last record."""
        self.unlisted = 0
        """Records since the ended transactions were listed."""
        self.left_out: dict[str, frozenset[str]] = {}
        """By transaction that was committed: the tokens of the messages behind the claim, which are not part of it."""
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

    def claimed(self, name: str) -> list[Prepared]:
        """Return the messages that the owner of a transaction is to commit."""
        found = self._open[name]
        return found.prepared[: found.claimed]

    def apply(self, entry: Entry, record: Record) -> Verdict:
        """Apply a record and return its effect."""
        self._forget(record.timestamp)
        self.next = record.offset + 1
        self.unlisted += 1
        match entry.kind:
            case Kind.RETIRED:
                for each in self._open.values():
                    self._release(each, entry.writer)
            case Kind.ENDED:
                self.unlisted = 0
                for name, state, began, timeout, at in json.loads(record.value or b"[]"):
                    self._end(Transaction(name, TransactionState(state), began, timeout, None, 0, 0), at)
            case Kind.PREPARED if entry.id not in self.known:
                began, timeout, check, *_ = entry.details
                self.known[entry.id] = Transaction(entry.id, TransactionState.OPEN, began, timeout, check, 0, 0)
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
                if behind := found.prepared[found.claimed :]:
                    self.left_out[entry.id] = frozenset(left.token for left in behind)
                self._end(transaction._replace(state=TransactionState(entry.kind)), record.timestamp)
        return Verdict.DONE

    def _prepare(self, found: _Open, entry: Entry, record: Record) -> Verdict:
        is_own = entry.token.startswith(self._own)
        size = entry.details[-1] + HEADERS
        token, kept = (entry.token, record) if is_own else ("", None)
        found.prepared.append(Prepared(token, record.offset, size, kept))
        self.size += size
        self.held += size if is_own else 0
        before = self.known[entry.id]
        self.known[entry.id] = before._replace(messages=before.messages + 1, size=before.size + entry.details[-1])
        return Verdict.DONE if found.owner is None else Verdict.BLOCKED

    def _release(self, found: _Open, writer: str) -> None:
        if found.owner == writer:
            found.owner = None

    def _end(self, transaction: Transaction, at: int) -> None:
        if (found := self._open.pop(transaction.id, None)) is not None:
            self.size -= sum(each.size for each in found.prepared)
            self.held -= sum(each.size for each in found.prepared if each.record is not None)
        self.known[transaction.id] = transaction
        self._ended[transaction.id] = at

    def _forget(self, now: int) -> None:
        while self._ended:
            name, at = next(iter(self._ended.items()))
            if at > now - _REMEMBERED and len(self._ended) <= ENDED_MAX:
                break
            del self._ended[name], self.known[name]
            self.left_out.pop(name, None)
