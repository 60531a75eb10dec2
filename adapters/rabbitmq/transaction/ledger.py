"""What the records of the stream of transactions come to. Pure: all bridges that read them come to the same.

RabbitMQ drops the oldest records when the stream is full, so what is unfinished is copied before: messages with their
names and numbers, then the commit. A bridge that starts may read the last records of a transaction and then the copies:
a commit that names more messages than were read counts, the end of an unknown transaction does not.
"""

import json
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties
from adapters.base import ENDED_MAX, Stored, Transaction, TransactionState
from adapters.rabbitmq.transaction import records
from adapters.rabbitmq.transaction.records import Changes, Prepared
from bridge.errors import BackendUnavailable
from bridge.message import Message

LOG_BYTES: Final = 1 << 30
"""Size of the stream; RabbitMQ keeps at least 7/8 of it."""
_COPY: Final = LOG_BYTES // 2
"""Bytes behind the end of the stream at which an unfinished transaction is copied."""
_LIST: Final = LOG_BYTES // 4
"""Bytes after which the ended transactions are listed again."""
_RECORD: Final = 1000
"""Bytes that a record takes beside its body and its properties, at most."""
_FIELDS: Final = frozenset(Message._fields)
_NEW: Final = Transaction("", TransactionState.OPEN, began=0, timeout=0, check=None, messages=0, size=0)


class Kept(NamedTuple):
    """A prepared message as it was read."""

    number: int
    of: Prepared
    arrival: Arrival


class Unfinished:
    """A transaction that is open, or whose messages are not all stored."""

    def __init__(self, position: int) -> None:
        self.kept: dict[str, Kept] = {}
        """By the names of their records."""
        self.position = position
        """Where its records begin, in bytes read."""
        self.bridge: str | None = None
        """The control queue of the bridge that stores the messages; None: the transaction is open."""
        self.changes: Sequence[Changes] = ()
        self.stored: dict[int, Stored] = {}
        """What this bridge has stored of it, by number."""

    def is_behind(self, other: "Unfinished") -> bool:
        """Whether this lacks messages or the commit, which the other has."""
        return self.kept.keys() < other.kept.keys() or (self.bridge is None and other.bridge is not None)

    def messages(self) -> list[Message]:
        """Return the messages in the order in which they were prepared."""
        return [records.message(each.arrival, each.of) for each in sorted(self.kept.values(), key=lambda kept: kept[0])]

    def completed(self) -> list[Message | None]:
        """Return what the commit stores of each message. Raises `BackendUnavailable` if some are still to be copied."""
        if len(self.kept) != len(self.changes):
            raise BackendUnavailable(f"{len(self.kept)} of {len(self.changes)} messages of a transaction are there.")
        pairs = zip(self.messages(), self.changes, strict=True)
        return [None if changes is None else message._replace(**changes) for message, changes in pairs]


class Ledger:
    """All unfinished transactions, and those that ended lately."""

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.unfinished: dict[str, Unfinished] = {}
        self.size = 0
        """Bytes of the messages of unfinished transactions."""
        self._ended: deque[str] = deque()
        self._read = 0
        """Bytes read."""
        self._listed = 0
        """Where the ended transactions were listed last, in bytes read."""

    def read(self, name: str, arrival: Arrival) -> bool:
        """Read one more record; return whether it counts. Raises `ValueError` if it is no record."""
        if (of := Prepared.of(arrival)) is not None:
            self._read += of.size + _RECORD
            return self._prepare(of, of.name or name, arrival)
        self._read += len(arrival.body) + _RECORD
        return self._read_mark(json.loads(arrival.body))

    def _read_mark(self, mark: Any) -> bool:  # noqa: ANN401 - JSON
        match mark:
            case ["commit", str(id_), str(bridge), [*changes]] if all(_is_valid(each) for each in changes):
                return self._commit(id_, bridge, changes)
            case ["rollback", str(id_)]:
                return self._rollback(id_)
            case ["take", str(id_), str(before), str(bridge)]:
                return self._take(id_, before, bridge)
            case ["stored", str(id_)]:
                return self._end(id_, TransactionState.COMMITTED)
            case ["ended", [*pairs], bool(is_last)] if all(_is_end(each) for each in pairs):
                return self._list(pairs, is_last=is_last)
            case ["read"]:
                return True
        raise ValueError("it is none of a transaction")

    def aged(self) -> list[str]:
        """Return the transactions that must be copied."""
        return [name for name, each in self.unfinished.items() if self._read - each.position > _COPY]

    def ends(self) -> list[bytes]:
        """Return the records that list the ended transactions, if it is time for that."""
        if self._read - self._listed <= _LIST:
            return []
        return records.ended([self.transactions[name] for name in self._ended])

    def copies(self, name: str) -> list[tuple[bytes, Properties | None]]:
        """Return the records that an unfinished transaction comes from."""
        transaction, unfinished = self.transactions[name], self.unfinished[name]
        copies: list[tuple[bytes, Properties | None]] = []
        for first, kept in unfinished.kept.items():
            of = kept.of._replace(began=transaction.began, timeout=transaction.timeout, check=transaction.check)
            copies.append(records.copied(kept.arrival, of._replace(name=first, number=kept.number)))
        if unfinished.bridge is not None:
            copies.append((records.commit(name, unfinished.bridge, unfinished.changes), None))
        return copies

    def lost(self, other: "Ledger") -> list[tuple[bytes, Properties | None]]:
        """Return the records that another ledger lacks because its stream has lost its last records, or all."""
        lost: list[tuple[bytes, Properties | None]] = []
        for name, transaction in self.transactions.items():
            known, found = self.unfinished.get(name), other.unfinished.get(name)
            if known is None and found is not None:
                is_committed = transaction.state is TransactionState.COMMITTED
                lost.append((records.stored(name) if is_committed else records.rollback(name), None))
            elif known is not None and (name not in other.transactions if found is None else found.is_behind(known)):
                lost += self.copies(name)
        return lost

    def succeed(self, earlier: "Ledger") -> None:
        """Take over from the ledger of a stream that was cut what only this bridge knows."""
        for name, transaction in earlier.transactions.items():
            if name in self.unfinished and name in earlier.unfinished:
                self.unfinished[name].stored = earlier.unfinished[name].stored
            elif name not in self.transactions:
                self._remember(transaction)

    def _prepare(self, of: Prepared, name: str, arrival: Arrival) -> bool:
        unfinished = self.unfinished.get(of.id)
        is_copy = of.name is not None
        if (of.id in self.transactions) if unfinished is None else (unfinished.bridge is not None and not is_copy):
            return False
        if unfinished is None:
            unfinished = self.unfinished[of.id] = Unfinished(self._read)
        known = self.transactions.get(of.id, _NEW._replace(id=of.id))
        if is_copy or not unfinished.kept:
            known = known._replace(began=of.began, timeout=of.timeout, check=of.check)
        if name not in unfinished.kept:
            known = known._replace(messages=known.messages + 1, size=known.size + of.size)
            self.size += of.size
        self.transactions[of.id] = known
        number = of.number if is_copy else len(unfinished.kept)
        unfinished.kept[name] = Kept(number, of, arrival)
        if is_copy and number == len(unfinished.kept) - 1:
            unfinished.position = self._read
        return True

    def _commit(self, name: str, bridge: str, changes: Sequence[Changes]) -> bool:
        unfinished = self.unfinished.get(name)
        if unfinished is None or unfinished.bridge is not None or len(unfinished.kept) > len(changes):
            return False
        unfinished.bridge, unfinished.changes = bridge, changes
        self.transactions[name] = self.transactions[name]._replace(state=TransactionState.COMMITTED)
        return True

    def _take(self, name: str, before: str, bridge: str) -> bool:
        unfinished = self.unfinished.get(name)
        if unfinished is None or unfinished.bridge != before:
            return False
        unfinished.bridge = bridge
        return True

    def _rollback(self, name: str) -> bool:
        unfinished = self.unfinished.get(name)
        if unfinished is None or unfinished.bridge is not None:
            return False
        return self._end(name, TransactionState.ROLLED_BACK)

    def _end(self, name: str, state: TransactionState) -> bool:
        """End a transaction, also one of which only the end was read."""
        if self.unfinished.pop(name, None) is None and name in self.transactions:
            return False
        known = self.transactions.get(name, _NEW._replace(id=name))
        self.size -= known.size
        self._remember(known._replace(state=state))
        return True

    def _list(self, pairs: Sequence[tuple[str, str]], *, is_last: bool) -> bool:
        for name, state in pairs:
            if name not in self.transactions:
                self._remember(_NEW._replace(id=name, state=TransactionState(state)))
        if is_last:
            self._listed = self._read
        return True

    def _remember(self, ended: Transaction) -> None:
        self.transactions[ended.id] = ended
        self._ended.append(ended.id)
        if len(self._ended) > ENDED_MAX:
            del self.transactions[self._ended.popleft()]


def _is_valid(changes: object) -> bool:
    return changes is None or (isinstance(changes, dict) and changes.keys() <= _FIELDS)


def _is_end(pair: object) -> bool:
    match pair:
        case [str(), TransactionState.COMMITTED.value | TransactionState.ROLLED_BACK.value]:
            return True
    return False
