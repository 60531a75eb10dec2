"""What clients hold in open transactions, and the messages by which a retry is recognized. Pure."""

import asyncio
from typing import NamedTuple

from bridge.engine.batch import Produced
from bridge.engine.dedup import Name
from bridge.engine.options import EngineOptions
from bridge.engine.quota import Share
from bridge.errors import BodyTooLarge, IdempotencyMismatch


class FirstPrepared(NamedTuple):
    """The first message of a name in a transaction."""

    body_hash: int
    result: Produced | asyncio.Future[Produced]


class OpenedTransaction:
    """A transaction that has messages from this bridge."""

    __slots__ = ("client", "first", "messages", "size")

    def __init__(self, client: str) -> None:
        self.client = client
        """The client of its first message here: all of it counts in that client's share."""
        self.messages = 0
        self.size = 0
        self.first: dict[Name, FirstPrepared] = {}

    def find_first(self, name: Name, body: bytes) -> "Produced | asyncio.Future[Produced] | None":
        """Return the result of the first message of a name. Raises `IdempotencyMismatch` if it had another body."""
        if (first := self.first.get(name)) is None:
            return None
        if first.body_hash != hash(body):
            raise IdempotencyMismatch(
                f"{name[0]}: a message with this messageId and another body is prepared in this transaction."
            )
        return first.result


class TransactionLimits:
    """Counts open transactions and their bytes, for each client and for all. Counts begin anew with the bridge."""

    def __init__(self, options: EngineOptions) -> None:
        share = options.client_share
        self.opened: dict[str, OpenedTransaction] = {}
        """By the transaction's id, until it has ended."""
        self._messages_max = options.transaction_messages
        self._bytes_max = options.transaction_bytes
        self._open = Share(options.transactions, share, "open transactions", "limits.transactions")
        self._bytes = Share(options.prepared_bytes, share, "bytes of prepared messages", "limits.prepared_bytes")

    def take(self, name: str, client: str, size: int, messages: int, held: int) -> OpenedTransaction:
        """Count one more message of `size` bytes. The backend knows of `messages` with `held` bytes, perhaps of others.

        Raises `BodyTooLarge` above the limits of a transaction, and as `Share.check`; then nothing is counted.
        """
        opened = self.opened.get(name)
        if opened is not None:
            client, messages, held = opened.client, max(messages, opened.messages), max(held, opened.size)
        if messages >= self._messages_max:
            raise BodyTooLarge(f"A transaction has at most {self._messages_max} messages: limits.transaction_messages.")
        if messages and held + size > self._bytes_max:
            raise BodyTooLarge(f"A transaction has at most {self._bytes_max} bytes: limits.transaction_bytes.")
        self._bytes.check(client, size)
        if opened is None:
            self._open.take(client)
            opened = self.opened[name] = OpenedTransaction(client)
        self._bytes.add(client, size)
        opened.messages += 1
        opened.size += size
        return opened

    def give_back(self, name: str, size: int) -> None:
        """Stop counting a message that was not prepared, and its transaction if it has no other."""
        if (opened := self.opened.get(name)) is not None:
            opened.messages -= 1
            opened.size -= size
            self._bytes.release(opened.client, size)
            if not opened.messages:
                self.release(name)

    def release(self, name: str) -> None:
        """Stop counting a transaction that has ended. Harmless if it is not counted."""
        if (opened := self.opened.pop(name, None)) is not None:
            self._open.release(opened.client)
            self._bytes.release(opened.client, opened.size)
