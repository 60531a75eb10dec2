"""The records of the stream of transactions. Pure.

| record | |
|---|---|
| a message with the header `oms_d_prepared` | prepared; after the end of its transaction it does not count |
| `["commit", id, bridge, changes]` | `bridge` stores the messages, each with its changes |
| `["rollback", id]` | the messages are dropped |
| `["take", id, before, bridge]` | `bridge` stores the messages in place of `before`, which has ended |
| `["stored", id]` | all messages of a commit are stored |
| `["ended", [[id, state], …], last]` | ended transactions, whose own records the stream may have dropped |
| `["read"]` | nothing: its writer reads up to it |

The first end of a transaction counts. A commit names as many messages as there are, or it does not count.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties
from adapters.base import Transaction
from adapters.field_headers import INTERNAL_PREFIX
from adapters.rabbitmq.message.headers import BROKERS, MESSAGE_ID
from adapters.rabbitmq.message.mapping import from_arrival, to_properties
from bridge.message import Message

Changes = Mapping[str, Any] | None
"""The fields that the engine has set in a message, by their names in `Message`; None: it is not stored."""

_LISTED: Final = 1000
"""Ended transactions of one mark: with the longest ids it has 1.5 MiB."""
_PREPARED: Final = f"{INTERNAL_PREFIX}prepared"


class Prepared(NamedTuple):
    """What a prepared message has beside itself."""

    id: str
    """Of its transaction; the next three are of that, too."""
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
    """Of a copy: how many messages of the transaction come before it."""

    @classmethod
    def of(cls, arrival: Arrival) -> Self | None:
        """Read it; None: the record is a mark. Raises `ValueError`."""
        said = (arrival.properties.headers or {}).get(_PREPARED)
        if said is None:
            return None
        match json.loads(said) if isinstance(said, str) else None:
            case [str(), int(), int(), str() | None, str(), int() | None, int(), str() | None, int()] as found:
                return cls(*found)
        raise ValueError("it is no prepared message")


def prepared(transaction: Transaction, message: Message, now: int) -> tuple[bytes, Properties]:
    """Return the record of a message; `now`, ms since 1970, stands for the storeTimestamp, which it has not yet."""
    properties, body = to_properties(message._replace(store_timestamp=now))
    of = Prepared(*_begin(transaction), message.destination, message.partition, message.size)
    if properties.message_id is not None:
        properties.headers[MESSAGE_ID] = properties.message_id  # the property will be the name of the record
    return body, _stream_properties(properties.headers, of, properties)


def copied(arrival: Arrival, of: Prepared) -> tuple[bytes, Properties]:
    """Return another record of a message."""
    return arrival.body, _stream_properties(arrival.properties.headers, of, arrival.properties)


def message(arrival: Arrival, of: Prepared) -> Message:
    """Return the message of a record as it was prepared."""
    found = from_arrival(arrival, of.destination, of.partition or 0)
    return found._replace(partition=of.partition, store_timestamp=None)


def changes(prepared: Message, completed: Message | None) -> Changes:
    """Return what completing has changed."""
    if completed is None:
        return None
    pairs = zip(Message._fields, prepared, completed, strict=True)
    return {name: after for name, before, after in pairs if after != before}


def commit(name: str, bridge: str, each: Sequence[Changes]) -> bytes:
    """Return the mark of a commit."""
    return json.dumps(["commit", name, bridge, each]).encode()


def rollback(name: str) -> bytes:
    """Return the mark of a rollback."""
    return json.dumps(["rollback", name]).encode()


def take(name: str, before: str, bridge: str) -> bytes:
    """Return the mark of a commit that another bridge finishes."""
    return json.dumps(["take", name, before, bridge]).encode()


def stored(name: str) -> bytes:
    """Return the mark of a commit that is finished."""
    return json.dumps(["stored", name]).encode()


def ended(transactions: Sequence[Transaction]) -> list[bytes]:
    """Return the marks that list ended transactions."""
    pairs = [[each.id, each.state.value] for each in transactions]
    starts = range(0, len(pairs), _LISTED)
    return [json.dumps(["ended", pairs[at : at + _LISTED], at == starts[-1]]).encode() for at in starts]


def _begin(transaction: Transaction) -> tuple[str, int, int, str | None]:
    return transaction.id, transaction.began, transaction.timeout, transaction.check


def _stream_properties(headers: Mapping[str, Any], of: Prepared, slots: Properties) -> Properties:
    kept = {name: value for name, value in headers.items() if name not in BROKERS}
    return Properties(
        content_type=slots.content_type,
        content_encoding=slots.content_encoding,
        correlation_id=slots.correlation_id,
        timestamp=slots.timestamp,
        headers={**kept, _PREPARED: json.dumps(of)},
    )
