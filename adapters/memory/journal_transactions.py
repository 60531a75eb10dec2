"""How the journal writes prepared messages, and the ends of their transactions."""

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from adapters.base import Transaction, TransactionState
from adapters.memory.journal_schema import in_bulk, with_checksum
from adapters.memory.record import BODY, encode
from adapters.memory.transaction_table import OpenTransaction, PreparedWrite

_OPEN: Final = 0
"""`ended` of a transaction that is open; otherwise when it ended, ms since 1970."""


class TransactionEnd(NamedTuple):
    """A transaction to end. Its messages, if it is committed, are in the same batch."""

    transaction: OpenTransaction
    state: TransactionState
    now: int
    future: asyncio.Future[None]


def write_prepared(connection: sqlite3.Connection, writes: Sequence[PreparedWrite]) -> None:
    """Write prepared messages, inside a transaction."""
    begun = {write.transaction.details.id: write.transaction.details for write in writes}
    rows = [_row(details, _OPEN) for details in begun.values()]
    in_bulk(connection, "INSERT OR REPLACE INTO txn VALUES %", with_checksum(rows))
    messages = [
        (sequence, _blob(transaction.details.id), encode(record), record[BODY])
        for transaction, sequence, record, _, _ in writes
    ]
    in_bulk(connection, "INSERT INTO prepared VALUES %", with_checksum(messages))


def write_ends(connection: sqlite3.Connection, ends: Sequence[TransactionEnd]) -> None:
    """Delete the prepared messages of transactions and write how these ended, inside a transaction."""
    sequences = [(sequence,) for end in ends for sequence in end.transaction.prepared]
    in_bulk(connection, "DELETE FROM prepared WHERE sequence IN (VALUES %)", sequences)
    rows = [_row(end.transaction.details._replace(state=end.state), end.now) for end in ends]
    in_bulk(connection, "INSERT OR REPLACE INTO txn VALUES %", with_checksum(rows))


def delete_transactions(connection: sqlite3.Connection, ids: Iterable[str]) -> None:
    """Delete ended transactions that are forgotten, inside a transaction. Their ids may have begun anew."""
    in_bulk(connection, "DELETE FROM txn WHERE ended<>0 AND id IN (VALUES %)", [(_blob(each),) for each in ids])


def read_transaction(name: bytes, state: str, began: int, timeout: int, check: bytes | None) -> Transaction:
    """Return the transaction of a row. Raises `ValueError`."""
    url = None if check is None else _text(check)
    return Transaction(_text(name), TransactionState(state), began, timeout, url, messages=0, size=0)


def _row(details: Transaction, ended: int) -> tuple[bytes | str | int | None, ...]:
    check = None if details.check is None else _blob(details.check)
    return _blob(details.id), details.state.value, details.began, details.timeout, check, ended


def _blob(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(blob: bytes) -> str:
    return blob.decode("utf-8", "surrogatepass")
