"""What clients hold in open transactions, the messages by which a retry is recognized, when and how each must end."""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from adapters.base import Transaction
from bridge.engine.client_limits import INTERNAL, DelayedShare, Share
from bridge.engine.dedup import Name
from bridge.engine.options import EngineOptions
from bridge.engine.produce_request import Produced
from bridge.errors import BodyTooLarge, IdempotencyMismatch


class FirstPrepared(NamedTuple):
    """The first message of a name in a transaction."""

    body_hash: int
    result: Produced | asyncio.Future[Produced]


class OpenedTransaction:
    """A transaction that has messages from this bridge."""

    __slots__ = ("client", "delayed_messages", "delayed_size", "first", "messages", "size")

    def __init__(self, client: str) -> None:
        self.client = client
        """The client of its first message here: all of it counts in that client's share."""
        self.messages = self.delayed_messages = 0
        self.size = self.delayed_size = 0
        """Bytes."""
        self.first: dict[Name, FirstPrepared] = {}

    def add(self, size: int, count: int, *, delayed: bool) -> None:
        """Count messages of `size` bytes; less with negative numbers."""
        self.messages += count
        self.size += size
        if delayed:
            self.delayed_messages += count
            self.delayed_size += size

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
    """Counts open transactions and their bytes, for each client and for all. Counts begin anew with the bridge.

    Their delayed messages count in `delayed`, too: else a client could store more of them than its share.
    """

    def __init__(self, options: EngineOptions, delayed: DelayedShare) -> None:
        self._delayed = delayed
        share = options.client_share
        self.opened: dict[str, OpenedTransaction] = {}
        """By the transaction's id, until it has ended."""
        self._messages_max = options.transaction_messages
        self._bytes_max = options.transaction_bytes
        self._open = Share(options.transactions, share, "open transactions", "limits.transactions")
        self._bytes = Share(options.prepared_bytes, share, "bytes of prepared messages", "limits.prepared_bytes")

    def check(self, name: str, client: str, size: int, messages: int, held: int) -> OpenedTransaction | None:
        """Check one more message of `size` bytes; return the transaction if it has messages from this bridge.

        The backend knows of `messages` with `held` bytes, perhaps of others. Raises `BodyTooLarge` above the limits of
        a transaction, and as `Share.check`.
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
            self._open.check(client)
        return opened

    def take(self, name: str, client: str, size: int, prepared: tuple[int, int], *, delayed: bool) -> OpenedTransaction:
        """Count one more message; `prepared`: the last arguments of `check`. Raises as `check`."""
        opened = self.check(name, client, size, *prepared)
        if opened is None:
            opened = self.opened[name] = OpenedTransaction(client)
            self._open.add(client)
        self._bytes.add(opened.client, size)
        opened.add(size, 1, delayed=delayed)
        if delayed:
            self._delayed.hold(opened.client, size)
        return opened

    def give_back(self, name: str, size: int, *, delayed: bool) -> None:
        """Stop counting a message that was not prepared, and its transaction if it has no other."""
        if (opened := self.opened.get(name)) is not None:
            opened.add(-size, -1, delayed=delayed)
            self._bytes.release(opened.client, size)
            if delayed:
                self._delayed.release(opened.client, 1, size)
            if not opened.messages:
                self.release(name)

    def release(self, name: str) -> str:
        """Stop counting a transaction that has ended, and return its client; `INTERNAL` if it is not counted."""
        if (opened := self.opened.pop(name, None)) is None:
            return INTERNAL
        self._open.release(opened.client)
        self._bytes.release(opened.client, opened.size)
        if opened.delayed_messages:
            self._delayed.release(opened.client, opened.delayed_messages, opened.delayed_size)
        return opened.client


CHECKS_MAX: Final = 10
"""Number of checks without a decision after which a transaction is rolled back."""
_FIRST_PAUSE: Final = 5_000
"""Milliseconds between the first two checks; the pause doubles after each."""
_LONGEST_PAUSE: Final = 60_000
_ENDED_MAX: Final = 1000
"""Entries of ended transactions that wait for their time, if they are not more than those of open ones."""


class Decision(StrEnum):
    """What the producer answers to a check."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


class TransactionChecks(NamedTuple):
    """How producers are asked whether to commit a transaction; see `callbacks`."""

    check_url: Callable[[str], object]
    """Raises `HeaderInvalid` or `CallbackRefused`."""
    ask: Callable[[Transaction], Awaitable[Decision]]
    """Returns `UNKNOWN` if there is no answer; raises nothing."""


class TransactionDeadlines:
    """The open transactions by the time of their next check. All times in ms since 1970."""

    def __init__(self) -> None:
        self._checks: dict[str, int] = {}
        """How often each transaction was checked without a decision."""
        self._due: list[tuple[int, str]] = []
        """A heap; it also has entries of transactions that have ended."""

    def __len__(self) -> int:
        return len(self._due)

    def add(self, name: str, deadline: int) -> None:
        """Add an open transaction; does nothing if it was added before."""
        if name not in self._checks:
            self._checks[name] = 0
            heappush(self._due, (deadline, name))

    def remove(self, name: str) -> None:
        """Remove a transaction that has ended. Harmless if it is not there."""
        if self._checks.pop(name, None) is not None and len(self._due) > 2 * len(self._checks) + _ENDED_MAX:
            self._due = [entry for entry in self._due if entry[1] in self._checks]
            heapify(self._due)

    def take_due(self, now: int) -> list[str]:
        """Return the transactions whose time has come. After each comes `remove`, `postpone` or `undecided`."""
        found: list[str] = []
        while self._due and self._due[0][0] <= now:
            _, name = heappop(self._due)
            if name in self._checks:
                found.append(name)
        return found

    def undecided(self, name: str, now: int) -> bool:
        """Plan the next check after one without a decision. False: there were enough."""
        checks = self._checks.get(name, 0) + 1
        if checks >= CHECKS_MAX:
            return False
        self._checks[name] = checks
        heappush(self._due, (now + min(_FIRST_PAUSE << (checks - 1), _LONGEST_PAUSE), name))
        return True

    def postpone(self, name: str, now: int) -> None:
        """Try again later: the backend could not end the transaction."""
        if name in self._checks:
            heappush(self._due, (now + _FIRST_PAUSE, name))
