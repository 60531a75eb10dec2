"""Open transactions: what clients hold in them, when each must end, and its messages until a commit completes them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, Self

from uuid_utils import uuid7

from adapters.base import Stored, Transaction
from bridge.engine.client_limits import INTERNAL, DelayedShare, Share
from bridge.engine.clock import Clock
from bridge.engine.field_support import Applied
from bridge.engine.message_names import Name, name_of
from bridge.engine.options import EngineOptions
from bridge.engine.produced import Produced
from bridge.engine.producer import Producer
from bridge.errors import BodyTooLarge, BridgeError, HeaderInvalid, IdempotencyMismatch
from bridge.message import Message


class FirstPrepared(NamedTuple):
    """The first message of a name in a transaction."""

    body_hash: int
    result: asyncio.Future[Produced]


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

    def find_first(self, name: Name, body: bytes) -> "asyncio.Future[Produced] | None":
        """Return the result of the first message of a name. Raises `IdempotencyMismatch` if it had another body."""
        if (first := self.first.get(name)) is None:
            return None
        if first.body_hash != hash(body):
            raise IdempotencyMismatch(
                f"{name[1]}: a message with this messageId and another body is prepared in this transaction."
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
        self._added = asyncio.Event()
        """Set while there is an entry."""

    def __len__(self) -> int:
        return len(self._due)

    def add(self, name: str, deadline: int) -> None:
        """Add an open transaction; does nothing if it was added before."""
        if name not in self._checks:
            self._checks[name] = 0
            self._push(deadline, name)

    def _push(self, due: int, name: str) -> None:
        heappush(self._due, (due, name))
        self._added.set()

    async def wait(self, tick: float, longest: float) -> None:
        """Wait for `tick` seconds; without a transaction until one is added, for `longest` seconds at most."""
        if self._due:
            await asyncio.sleep(tick)
            return
        self._added.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(longest):
                await self._added.wait()

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
            self._push(now + _FIRST_PAUSE, name)


ID_MAX: Final = 255
"""Longest id of a transaction, characters: backends remember the ids of many."""


class TransactionRequest(NamedTuple):
    """What a produce says about its transaction."""

    id: str | None
    """None: the bridge makes one, unless the messages name one."""
    commits: bool
    """Whether the transaction is committed with the messages of this request."""
    timeout: int
    """Milliseconds."""
    check: str | None
    owner: str = ""
    """Begins the name of the transaction in the backend: a principal and `OWNER_END`; empty without identities."""

    @property
    def name(self) -> str:
        """The name of the transaction in the backend; `with_id` comes before."""
        return f"{self.owner}{self.id}"

    def with_id(self, messages: Sequence[Message | BridgeError]) -> Self:
        """Return the request with the id of its transaction. Raises `HeaderInvalid`."""
        name = self.id
        for message in messages:
            if isinstance(message, Message) and (of_message := message.transaction_id) not in {None, name}:
                if name is not None:
                    raise HeaderInvalid("x-oms-h-transactionid: the messages of one request belong to one transaction.")
                name = of_message
        if name is None:
            name = str(uuid7())
        if not 0 < len(name) <= ID_MAX:
            raise HeaderInvalid(f"x-oms-h-transactionid: the id of a transaction has 1 to {ID_MAX} characters.")
        return self if self.id == name else self._replace(id=name)


class Judged(NamedTuple):
    """A message that may be prepared."""

    message: Message
    applied: Applied
    size: int
    """Bytes that it counts in limits."""
    is_named: bool
    """Whether its client has named it, so that a retry can be recognized."""


class Commit(NamedTuple):
    """Where a commit has stored the messages, by their names, and when."""

    stored: dict[Name, Stored]
    wall: int


def repeated_places(messages: Sequence[Message]) -> frozenset[int]:
    """Return the places of messages that repeat an earlier one: the same name and the same body.

    A retry that this bridge does not recognize, because it was restarted or another bridge got the first try, is
    prepared again. The bridge gives each message without a name another messageId, so only retries repeat one.
    """
    first: dict[tuple[Name, bytes], int] = {}
    return frozenset(
        place for place, each in enumerate(messages) if first.setdefault((name_of(each), each.body), place) != place
    )


class CommitCompletion:
    """Completes the messages of a commit, once the backend knows which they are."""

    def __init__(self, producer: Producer, clock: Clock) -> None:
        self._producer = producer
        self._clock = clock
        self.wall = clock.wall()
        """When the messages were completed, ms since 1970."""
        self.messages: Sequence[Message | None] = ()
        """All of them; None: not stored."""
        self.completed: Sequence[Message | None] = ()
        """Those that repeat no earlier one; None: expired."""
        self.repeated: frozenset[int] = frozenset()
        """The places of those that do."""

    async def complete(self, messages: Sequence[Message]) -> Sequence[Message | None]:
        """See `adapters.base.Complete`."""
        self.wall = self._clock.wall()
        if len(messages) > 1 and (repeated := repeated_places(messages)):
            self.repeated = repeated
            first = [each for place, each in enumerate(messages) if place not in repeated]
            self.completed = await self._producer.complete_prepared(first, self.wall)
            in_order = iter(self.completed)
            self.messages = [None if place in repeated else next(in_order) for place in range(len(messages))]
        else:
            self.messages = self.completed = await self._producer.complete_prepared(messages, self.wall)
        return self.messages
