"""The records of the topic of transactions: one entry in a header, and for a prepared message the message. Pure.

An entry is about one transaction, except `RETIRED` (about one writer) and `ENDED` (a list in the record's value).
"""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from adapters.base import Transaction, TransactionState
from adapters.kafka.headers import TRANSACTION
from adapters.kafka.mapping import from_record, to_record
from adapters.kafka.record import Outgoing, Record
from bridge.message import Message

_LIST_MAX: Final = 256 * 1024
"""About so many bytes of `ENDED` in one record."""


class Kind(StrEnum):
    """What an entry says."""

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
    """The writer is fenced: what it has not committed it will never commit."""
    ENDED = "ended"
    """Transactions that have ended, so that older records can be deleted."""


class Entry(NamedTuple):
    """One entry. JSON, for Kafka's own tools show it, and any text of Python's can be written with it."""

    kind: Kind
    id: str = ""
    """Of the transaction."""
    writer: str = ""
    """The transactional id (Kafka's) of the bridge that claims, commits, or is retired."""
    token: str = ""
    """By which the bridge that wrote the entry finds it again."""
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


def transaction_of(entry: Entry) -> Transaction:
    """Return the transaction that begins with a prepared message."""
    began, timeout, check, *_ = entry.details
    return Transaction(entry.id, TransactionState.OPEN, began, timeout, check, messages=0, size=0)


def message_of(entry: Entry, record: Record) -> Message:
    """Return a prepared message as it was."""
    *_, destination, partition, store_timestamp, _ = entry.details
    return from_record(record, destination)._replace(partition=partition, store_timestamp=store_timestamp)


def ended_of(record: Record) -> list[tuple[Transaction, int]]:
    """Return the transactions that an `ENDED` record lists."""
    return [
        (Transaction(name, TransactionState(state), began, timeout, None, messages=0, size=0), at)
        for name, state, began, timeout, at in json.loads(record.value or b"[]")
    ]
