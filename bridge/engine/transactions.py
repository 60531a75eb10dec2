"""Transactions: prepares messages, and commits them or rolls them back."""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal

from adapters.base import Adapter, Stored, Support, Transaction, Transactional, TransactionState
from bridge.engine.client_limits import client_of
from bridge.engine.clock import Clock, error_of, ignore_result, shielded
from bridge.engine.counters import Counters
from bridge.engine.field_support import COMBINATIONS_KEPT, Applied
from bridge.engine.message_names import Name, name_of, named
from bridge.engine.observer import TransactionObserver
from bridge.engine.open_transactions import (
    Commit,
    CommitCompletion,
    FirstPrepared,
    Judged,
    TransactionChecks,
    TransactionDeadlines,
    TransactionLimits,
    TransactionRequest,
)
from bridge.engine.options import EngineOptions
from bridge.engine.produced import Produced
from bridge.engine.producer import Producer
from bridge.errors import (
    BridgeError,
    CallbackRefused,
    FieldUnsupported,
    TransactionEnded,
    TransactionUnknown,
)
from bridge.message import Field, Message


class Transactions:
    """The transactions of one backend, whichever bridge began them."""

    def __init__(  # noqa: PLR0913, PLR0917 - what the engine, which builds them, knows
        self,
        adapter: Adapter,
        clock: Clock,
        options: EngineOptions,
        counters: Counters,
        producer: Producer,
        observer: TransactionObserver | None = None,
    ) -> None:
        self._observer = observer
        self.checks: TransactionChecks | None = None
        """None: callbacks are off, so no producer is asked."""
        self.deadlines = TransactionDeadlines()
        self._backend = adapter if isinstance(adapter, Transactional) else None
        self._clock = clock
        self._options = options
        self._counters = counters
        self._producer = producer
        self._limits = TransactionLimits(options, producer.delayed)
        self._applied: dict[str, Applied] = {}
        """By the text of what applies outside transactions."""

    @property
    def support(self) -> Support:
        """How the backend honours transactions."""
        return Support.UNSUPPORTED if self._backend is None else self._backend.transactions

    @property
    def opened(self) -> int:
        """Number of open transactions that have messages from this bridge."""
        return len(self._limits.opened)

    def get(self, name: str) -> Transaction:
        """Return a transaction. Raises `TransactionUnknown`, `FieldUnsupported`, `BackendUnavailable`."""
        if (known := self._required().known_transactions().get(name)) is None:
            raise TransactionUnknown.of(name)
        return known

    def all_open(self) -> list[Transaction]:
        """Return the open transactions, the oldest first. Raises `FieldUnsupported`, `BackendUnavailable`."""
        known = self._required().known_transactions().values()
        return sorted((each for each in known if each.state is TransactionState.OPEN), key=lambda each: each.began)

    async def produce(
        self,
        request: TransactionRequest,
        messages: Sequence[Message | BridgeError],
        require: Sequence[Field],
        peer: str,
        key: str | None,
    ) -> list[Produced | BridgeError]:
        """Prepare messages, and commit the transaction if the request says so and all of them were prepared.

        Returns one result for each message, in the same order. `key` names messages as in `Deduplicator.produce`.
        Raises what concerns all of them: `FieldUnsupported`, `TransactionEnded` and `CallbackRefused`.
        """
        request = self._checked(request, messages)
        is_single = len(messages) == 1
        results: list[BridgeError | asyncio.Future[Produced]] = []
        for place, message in enumerate(messages):
            try:
                if isinstance(message, BridgeError):
                    raise message
                if key is not None:
                    message = named(message, key, None if is_single else place)  # noqa: PLW2901
                judged = self._judge(request, message, require, peer)
                results.append(await self._begin_prepare(request, judged, peer))
            except BridgeError as error:
                results.append(error)
        prepared = [await self._result(result) for result in results]
        if not request.commits or any(isinstance(result, BridgeError) for result in prepared):
            return prepared
        commit = await shielded(self._commit(request.name), self._options.produce_timeout)
        return [
            each if isinstance(each, BridgeError) else self._committed(message, each, commit)
            for message, each in zip(messages, prepared, strict=True)
        ]

    async def commit(self, name: str) -> Transaction:
        """Store the messages of a transaction.

        Raises `TransactionUnknown`, `TransactionEnded`, and what the result of a produce may be.
        """
        await shielded(self._commit(name), self._options.produce_timeout)
        return self.get(name)._replace(state=TransactionState.COMMITTED)

    async def rollback(self, name: str) -> Transaction:
        """Drop the messages of a transaction. Raises as `commit`."""
        await shielded(self._roll_back(name), self._options.produce_timeout)
        return self.get(name)._replace(state=TransactionState.ROLLED_BACK)

    # Preparing

    def _checked(self, request: TransactionRequest, messages: Sequence[Message | BridgeError]) -> TransactionRequest:
        """Return the request with the id of its transaction. Raises what refuses all of it."""
        self._required()
        if request.check is not None:
            if self.checks is None:
                raise CallbackRefused(
                    "x-oms-transaction-check: callbacks are off; to turn them on, name their endpoints in the setting"
                    " callbacks.targets."
                )
            self.checks.check_url(request.check)
        return request.with_id(messages)

    def _judge(self, request: TransactionRequest, message: Message, require: Sequence[Field], peer: str) -> Judged:
        is_named = message.message_id is not None
        if message.transaction_id is None:
            message = message._replace(transaction_id=request.id)
        return Judged(*self._producer.judge_prepared(message, require, peer), is_named)

    async def _begin_prepare(self, request: TransactionRequest, judged: Judged, peer: str) -> asyncio.Future[Produced]:
        if not self._producer.knows(judged.message.destination):
            name = request.name
            self._limits.check(name, client_of(peer), judged.size, *self._prepared(name))  # first: it may create one
            await self._producer.find_destination(judged.message, client_of(peer))
        if self._observer is None:
            return self._prepare(request, judged, peer)
        message, ended = self._observer.preparing(str(request.id), judged.message)
        try:
            result = self._prepare(request, judged._replace(message=message, size=message.size), peer)
        except BaseException as error:
            ended(error)
            raise
        if result.done():  # a commit that follows in the same request has to find it
            ended(error_of(result))
        else:
            result.add_done_callback(lambda done: ended(error_of(done)))
        return result

    def _prepare(self, request: TransactionRequest, judged: Judged, peer: str) -> asyncio.Future[Produced]:
        """Store a message that was judged; one that was prepared before gets the first result."""
        name, (message, applied, size, is_named) = request.name, judged
        backend = self._required()
        held = self._prepared(name)
        opened = self._limits.opened.get(name)
        if is_named and opened is not None and (first := opened.find_first(name_of(message), message.body)):
            repeating = asyncio.ensure_future(self._repeat(first))
            repeating.add_done_callback(ignore_result)  # the client may have disconnected
            return repeating
        delayed = bool(message.delay_time)
        opened = self._limits.take(name, client_of(peer), size, held, delayed=delayed)
        details = Transaction(
            name, TransactionState.OPEN, self._clock.wall(), request.timeout, request.check, messages=0, size=0
        )
        supported = self._supported(applied)
        produced = Produced(message.message_id or "", 0, "", Stored(None, None), supported, transaction=request.id)
        is_done = False
        try:
            preparing = backend.prepare(details, message)
            if isinstance(preparing, asyncio.Future) and preparing.done():
                preparing.result()
                is_done = True
        except BaseException as error:
            self._limits.give_back(name, size, delayed=delayed)
            if isinstance(error, TransactionEnded):
                raise self._ended(name, error) from None
            raise
        if is_done:
            self.deadlines.add(name, details.began + details.timeout)
            result = asyncio.get_running_loop().create_future()
            result.set_result(produced)
        else:
            result = asyncio.ensure_future(
                self._wait_until_prepared(preparing, details, produced, size, delayed=delayed)
            )
            result.add_done_callback(ignore_result)
            if is_named:
                result.add_done_callback(partial(self._forget_refused, name, message))
        if is_named:
            opened.first[name_of(message)] = FirstPrepared(hash(message.body), result)
        return result

    def _supported(self, applied: Applied) -> Applied:
        """Return how the fields of a prepared message are honoured."""
        if (supported := self._applied.get(applied.text)) is None:
            supported = Applied({**applied, "transactionId": self.support.value}.items())
            if len(self._applied) < COMBINATIONS_KEPT:
                self._applied[applied.text] = supported
        return supported

    def _prepared(self, name: str) -> tuple[int, int]:
        """Return how many messages of a transaction the backend has, and their bytes. Raises `TransactionEnded`."""
        known = self._required().known_transactions().get(name)
        if known is None:
            return 0, 0
        if known.state is not TransactionState.OPEN:
            raise self._ended(name, TransactionEnded.of(name, known.state))
        return known.messages, known.size

    async def _wait_until_prepared(
        self, preparing: Awaitable[None], details: Transaction, produced: Produced, size: int, *, delayed: bool
    ) -> Produced:
        counters, is_prepared = self._counters, False
        counters.in_flight += 1
        counters.in_flight_bytes += size
        try:
            await preparing
            is_prepared = True
        except TransactionEnded as error:
            raise self._ended(details.id, error) from None
        finally:
            counters.in_flight -= 1
            counters.in_flight_bytes -= size
            if not is_prepared:
                self._limits.give_back(details.id, size, delayed=delayed)
        self.deadlines.add(details.id, details.began + details.timeout)
        return produced

    def _forget_refused(self, name: str, message: Message, result: asyncio.Future[Produced]) -> None:
        opened = self._limits.opened.get(name)
        if opened is not None and (result.cancelled() or result.exception() is not None):
            opened.first.pop(name_of(message), None)

    async def _repeat(self, first: asyncio.Future[Produced]) -> Produced:
        produced = await asyncio.shield(first)
        self._counters.duplicates += 1
        return produced._replace(duplicate=True)

    async def _result(self, preparing: BridgeError | asyncio.Future[Produced]) -> Produced | BridgeError:
        if isinstance(preparing, BridgeError):
            return preparing
        try:
            return await shielded(preparing, self._options.produce_timeout)
        except BridgeError as error:
            return error

    # Ending

    async def _commit(self, name: str) -> Commit:
        completion = CommitCompletion(self._producer, self._clock)
        with self._observed("commit", name):
            try:
                return self._commit_of(name, completion, await self._required().commit(name, completion.complete))
            except TransactionEnded as error:
                raise self._ended(name, error) from None

    def _commit_of(self, name: str, completion: CommitCompletion, places: Sequence[Stored | None]) -> Commit:
        client = self.forget(name)
        stored: dict[Name, Stored] = {}
        if places:
            self._counters.transactions_committed += 1
            self._producer.count_committed(completion.completed, client)
            self._counters.duplicates += len(completion.repeated)
            for message, place in zip(completion.messages, places, strict=True):
                if message is not None and place is not None:
                    stored[name_of(message)] = place
        return Commit(stored, completion.wall)

    async def _roll_back(self, name: str) -> None:
        known = self._required().known_transactions().get(name)
        with self._observed("rollback", name):
            try:
                await self._required().rollback(name)
            except TransactionEnded as error:
                raise self._ended(name, error) from None
            self.forget(name)
        self._counters.transactions_rolled_back += known is not None and known.state is TransactionState.OPEN

    @contextmanager
    def _observed(self, how: Literal["commit", "rollback"], name: str) -> Iterator[None]:
        """Tell the observer of the end of a transaction, which the block makes."""
        if self._observer is None:
            yield
            return
        known = self._required().known_transactions().get(name)
        ended = self._observer.ending(how, name, None if known is None else known.messages)
        try:
            yield
        except BaseException as error:
            ended(error)
            raise
        ended(None)

    def _committed(self, message: Message | BridgeError, prepared: Produced, commit: Commit) -> Produced:
        stored = None
        if isinstance(message, Message):
            stored = commit.stored.get(name_of(message._replace(message_id=prepared.message_id)))
        return prepared._replace(
            store_timestamp=commit.wall, store_host=self._options.store_host, stored=stored or Stored(None, None)
        )

    def _ended(self, name: str, error: TransactionEnded) -> TransactionEnded:
        """Add the state to an error, and forget the transaction, which another bridge may have ended."""
        self.forget(name)
        if (known := self._required().known_transactions().get(name)) is not None:
            error.extra = {"state": known.state.value}
        return error

    def forget(self, name: str) -> str:
        """Stop counting and watching an ended transaction, and return its client; see `TransactionLimits.release`."""
        if self._observer is not None:
            self._observer.forget(name)
        self.deadlines.remove(name)
        return self._limits.release(name)

    def _required(self) -> Transactional:
        if self._backend is None:
            raise FieldUnsupported("x-oms-transaction: this backend has no transactions; nothing was stored.")
        return self._backend
