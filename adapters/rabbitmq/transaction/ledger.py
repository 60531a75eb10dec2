"""The records of the stream of transactions, and the state that they add up to. Pure.

| record | meaning |
|---|---|
| a message with the header `oms_d_prepared` | it is prepared; behind the end of its transaction it does not count |
| `["commit", id, bridge, changes]` | `bridge` stores the messages, each with its changes |
| `["rollback", id]` | the messages are dropped |
| `["take", id, before, bridge]` | `bridge` stores the messages in place of `before`, which has ended |
| `["stored", id]` | all messages of a commit are stored |
| `["ended", [[id, state], …], is_last]` | ended transactions, whose own records the stream may have dropped |
| `["read"]` | nothing: its writer reads up to it |

All bridges read the same records, so they have the same state. The first end of a transaction counts. A commit counts
only if it has changes for as many messages as were read.

RabbitMQ drops the oldest records when the stream is full, so unfinished transactions are copied before: the messages
with their names and numbers, then the commit. A bridge that starts may read the last records of a transaction and then
the copies: a commit of more messages than were read counts, and the end of an unknown transaction does not.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Self

from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties
from adapters.base import ENDED_MAX, Stored, Transaction, TransactionState
from adapters.field_headers import INTERNAL_PREFIX
from adapters.rabbitmq.headers import BROKERS, MESSAGE_ID
from adapters.rabbitmq.mapping import from_arrival, to_properties
from adapters.rabbitmq.topology.shared_log import Record
from bridge.errors import BackendUnavailable
from bridge.message import Message

Kind = Literal["commit", "rollback", "take", "stored"]
Changes = Mapping[str, Any] | None
"""The fields that the engine has set in a message, by their names in `Message`; None: it is not stored."""

_PREPARED: Final = f"{INTERNAL_PREFIX}prepared"


class Prepared(NamedTuple):
    """The header of a prepared message."""

    id: str
    """Of its transaction, as the next three."""
    began: int
    timeout: int
    check: str | None
    destination: str
    partition: int | None
    size: int
    """`Message.size`."""
    name: str | None = None
    """Of a copy: the name of the first record of the message."""
    number: int = 0
    """Of a copy: the number of messages of the transaction before it."""

    @classmethod
    def of(cls, arrival: Arrival) -> Self | None:
        """Read the header; None: the record is not a message. Raises `ValueError`."""
        said = (arrival.properties.headers or {}).get(_PREPARED)
        if said is None:
            return None
        match json.loads(said) if isinstance(said, str) else None:
            case [str(), int(), int(), str() | None, str(), int() | None, int(), str() | None, int()] as found:
                return cls(*found)
        raise ValueError("it is not a prepared message")


def prepared(transaction: Transaction, message: Message, now: int) -> tuple[bytes, Properties]:
    """Return the record of a message; `now`, ms since 1970, replaces the storeTimestamp, which it does not have yet."""
    properties, body = to_properties(message._replace(store_timestamp=now))
    began = transaction.id, transaction.began, transaction.timeout, transaction.check
    of = Prepared(*began, message.destination, message.partition, message.size)
    if properties.message_id is not None:
        properties.headers[MESSAGE_ID] = properties.message_id  # the property will be the name of the record
    return body, _stream_properties(properties.headers, of, properties)


def message_of(arrival: Arrival, of: Prepared) -> Message:
    """Return the message of a record as it was prepared."""
    found = from_arrival(arrival, of.destination, of.partition or 0)
    return found._replace(partition=of.partition, store_timestamp=None)


def changes(prepared: Message, completed: Message | None) -> Changes:
    """Return the changes that complete a message."""
    if completed is None:
        return None
    pairs = zip(Message._fields, prepared, completed, strict=True)
    return {name: after for name, before, after in pairs if after != before}


def encode(kind: Kind, transaction: str, *fields: object) -> bytes:
    """Return a record of the table above."""
    return json.dumps([kind, transaction, *fields]).encode()


def _stream_properties(headers: Mapping[str, Any], of: Prepared, slots: Properties) -> Properties:
    kept = {name: value for name, value in headers.items() if name not in BROKERS}
    return Properties(
        content_type=slots.content_type,
        content_encoding=slots.content_encoding,
        correlation_id=slots.correlation_id,
        timestamp=slots.timestamp,
        headers={**kept, _PREPARED: json.dumps(of)},
    )


LOG_BYTES: Final = 1 << 30
"""Size of the stream; RabbitMQ keeps at least 7/8 of it."""
_COPY: Final = LOG_BYTES // 2
"""Distance from the end of the stream, in bytes, at which an unfinished transaction is copied."""
_LIST: Final = LOG_BYTES // 4
"""Bytes of records after which the ended transactions are listed again."""
_LISTED: Final = 1000
"""Ended transactions in one list: with the longest ids it has 1.5 MiB."""
_RECORD: Final = 1000
"""Bytes that a record takes beside its body and properties, at most."""
_FIELDS: Final = frozenset(Message._fields)
_NEW: Final = Transaction("", TransactionState.OPEN, began=0, timeout=0, check=None, messages=0, size=0)


class Unfinished:
    """A transaction that is open, or whose messages are not all stored."""

    def __init__(self, position: int) -> None:
        self.prepared: dict[str, tuple[Prepared, Arrival]] = {}
        """The records as they were read, by the name of the first record of each message."""
        self.position = position
        """The bytes read before its records."""
        self.bridge: str | None = None
        """The control queue of the bridge that stores the messages; None: the transaction is open."""
        self.changes: Sequence[Changes] = ()
        self.stored: dict[int, Stored] = {}
        """The messages that this bridge has stored, by number."""

    def is_behind(self, other: "Unfinished") -> bool:
        """Whether this lacks a message or the commit, which the other has."""
        return not other.prepared.keys() <= self.prepared.keys() or (self.bridge is None and other.bridge is not None)

    def in_order(self) -> list[tuple[str, Prepared, Arrival]]:
        """Return the records, with their names, in the order in which the messages were prepared.

        Copies come first: their writer knew all messages before them, and a bridge that has just started did not.
        """
        records = [(name, of, arrival) for name, (of, arrival) in self.prepared.items()]
        return sorted(records, key=lambda record: (record[1].name is None, record[1].number))

    def messages(self) -> list[Message]:
        """Return the messages in the order in which they were prepared."""
        return [message_of(arrival, of) for _, of, arrival in self.in_order()]

    def completed(self) -> list[Message | None]:
        """Return each message as the commit stores it. Raises `BackendUnavailable` if copies are still missing."""
        if len(self.prepared) != len(self.changes):
            raise BackendUnavailable(f"{len(self.prepared)} of {len(self.changes)} messages of a transaction are read.")
        pairs = zip(self.messages(), self.changes, strict=True)
        return [None if changes is None else message._replace(**changes) for message, changes in pairs]


class Ledger:
    """The unfinished transactions, and those that ended lately."""

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
        """Read the next record; return whether it counts. Raises `ValueError` if it is not valid."""
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
        raise ValueError("it is not a record of a transaction")

    def aged(self) -> list[str]:
        """Return the transactions that must be copied."""
        return [name for name, each in self.unfinished.items() if self._read - each.position > _COPY]

    def listings(self) -> list[bytes]:
        """Return the records that list the ended transactions, the newest first.

        None if they were listed less than `_LIST` bytes ago.
        """
        if self._read - self._listed <= _LIST:
            return []
        ended = [(name, self.transactions[name].state.value) for name in reversed(self._ended)]
        starts = range(0, len(ended), _LISTED)
        return [json.dumps(["ended", ended[at : at + _LISTED], at == starts[-1]]).encode() for at in starts]

    def copies(self, name: str) -> list[Record]:
        """Return copies of the records of an unfinished transaction."""
        transaction, unfinished = self.transactions[name], self.unfinished[name]
        copies: list[Record] = []
        for number, (first, read, arrival) in enumerate(unfinished.in_order()):
            of = read._replace(began=transaction.began, timeout=transaction.timeout, check=transaction.check)
            of = of._replace(name=first, number=number)
            copies.append((arrival.body, _stream_properties(arrival.properties.headers, of, arrival.properties)))
        if unfinished.bridge is not None:
            copies.append((encode("commit", name, unfinished.bridge, unfinished.changes), None))
        return copies

    def missing_in(self, other: "Ledger") -> list[Record]:
        """See `State`."""
        missing: list[Record] = []
        for name, transaction in self.transactions.items():
            known, found = self.unfinished.get(name), other.unfinished.get(name)
            if known is None and found is not None:
                is_committed = transaction.state is TransactionState.COMMITTED
                missing.append((encode("stored" if is_committed else "rollback", name), None))
            elif known is not None and (name not in other.transactions if found is None else found.is_behind(known)):
                missing += self.copies(name)
        return missing

    def take_over(self, earlier: "Ledger") -> None:
        """Take over from the ledger of a lost stream what only this bridge knows."""
        for name, transaction in earlier.transactions.items():
            if name in self.unfinished and name in earlier.unfinished:
                self.unfinished[name].stored = earlier.unfinished[name].stored
            elif name not in self.transactions and transaction.state is not TransactionState.OPEN:
                self._remember(transaction)

    def _prepare(self, of: Prepared, name: str, arrival: Arrival) -> bool:
        unfinished = self.unfinished.get(of.id)
        is_copy = of.name is not None
        if (of.id in self.transactions) if unfinished is None else (unfinished.bridge is not None and not is_copy):
            return False
        if unfinished is None:
            unfinished = self.unfinished[of.id] = Unfinished(self._read)
        known = self.transactions.get(of.id, _NEW._replace(id=of.id))
        if is_copy or not unfinished.prepared:
            known = known._replace(began=of.began, timeout=of.timeout, check=of.check)
        if name not in unfinished.prepared:
            known = known._replace(messages=known.messages + 1, size=known.size + of.size)
            self.size += of.size
        self.transactions[of.id] = known
        unfinished.prepared[name] = of, arrival
        if is_copy and of.number == len(unfinished.prepared) - 1:
            unfinished.position = self._read
        return True

    def _commit(self, name: str, bridge: str, changes: Sequence[Changes]) -> bool:
        unfinished = self.unfinished.get(name)
        if unfinished is None or unfinished.bridge is not None or len(unfinished.prepared) > len(changes):
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
        """End a transaction, also if only its end was read."""
        if self.unfinished.pop(name, None) is None and name in self.transactions:
            return False
        known = self.transactions.get(name, _NEW._replace(id=name))
        self.size -= known.size
        self._remember(known._replace(state=state))
        return True

    def _list(self, pairs: Sequence[tuple[str, str]], *, is_last: bool) -> bool:
        for name, state in pairs:
            if name not in self.transactions and len(self._ended) < ENDED_MAX:  # those that were read are newer
                self.transactions[name] = _NEW._replace(id=name, state=TransactionState(state))
                self._ended.appendleft(name)
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
