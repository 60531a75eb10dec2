"""Writes to Kafka in transactions: the records that gather while one runs go into the next."""

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple
from uuid import uuid4

from kafka import KafkaProducer
from kafka import errors as kafka

from adapters.base import Stored
from adapters.kafka import errors
from adapters.kafka.connections import connect
from adapters.kafka.mapping import Outgoing
from adapters.kafka.names import Own
from adapters.kafka.options import REQUEST_TIMEOUT, Options
from adapters.kafka.thread_to_loop import complete
from adapters.shared_calls import SharedCalls
from bridge.errors import BackendUnavailable, BridgeError, OutcomeUnknown

_PATIENCE: Final = 10.0
"""Seconds for each step of a transaction."""
_TIMEOUT: Final = 15_000
"""Milliseconds after which the brokers roll back what a killed bridge left open: until then readers of committed
records wait, unless another bridge fences it."""
_NUMBER: Final = "#"
"""Between the transactional id and the number of a writer."""
_RECORDS_MAX: Final = 1_000
"""Records of one transaction of Kafka's, unless one commit alone has more."""
_RECORD_MAX: Final = 256 << 20
"""Bytes of a record. The brokers decide what is too large, so this is above what they accepted before."""


class CommitFailed(Exception):
    """A transaction of Kafka's failed. Retire its writer to find out whether it was committed after all."""

    def __init__(self, reason: BaseException, topics: str, *, ending: bool, alone: bool) -> None:
        super().__init__(f"{type(reason).__name__} {reason}")
        self.ending = ending
        """It may have been committed."""
        self.alone = alone
        """It had the records of one commit only, so the reason is about these."""
        self.error: BridgeError = errors.of_exception(reason, topics)
        """The error if the records turn out not to be stored."""
        if isinstance(reason, kafka.BrokerResponseError):
            self.error = errors.of_produce(errors.code_of(reason), topics)
            if isinstance(self.error, OutcomeUnknown):
                self.error = BackendUnavailable(self.error.detail)


class _Group(NamedTuple):
    writer: str
    records: Sequence[Outgoing]
    alone: bool
    future: asyncio.Future[list[Stored]]


class GroupCommit:
    """One writer at a time; after a failure another one begins.

    All have the bridge's one transactional id: brokers remember each id for 7 days. A writer that connects fences the
    one before. The name of a writer is the id and a number, so that what is said about one is not taken for the next.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._id = f"{Own(options.prefix).transactions}.{uuid4().hex}"
        self._numbers = itertools.count(1)
        self._thread = ThreadPoolExecutor(1, "kafka-commit")
        self._writer: _Writer | None = None
        self._starting: SharedCalls[None, None] = SharedCalls()
        self._groups: deque[_Group] = deque()
        self._working: asyncio.Task[None] | None = None

    @property
    def current(self) -> str | None:
        """The name of the writer; None: there is none now."""
        return None if self._writer is None else self._writer.name

    async def writer(self) -> str:
        """Return the name of the writer, which is connected. Raises `BackendUnavailable` or `Refused`."""
        if self._writer is None:
            await self._starting.run(None, self._start)
        return self.current or await self.writer()

    def commit(self, writer: str, records: Sequence[Outgoing], *, alone: bool) -> asyncio.Future[list[Stored]]:
        """Write records, all or none, with those of other calls unless `alone`. The future raises `CommitFailed`."""
        future: asyncio.Future[list[Stored]] = asyncio.get_running_loop().create_future()
        self._groups.append(_Group(writer, records, alone, future))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return future

    async def fence(self, name: str) -> None:
        """End a writer's open transaction; it writes nothing from now on. Raises `BackendUnavailable`, `Refused`."""
        if self.is_own(name) and name != self.current:
            await self.writer()  # it has fenced the earlier one when it connected; fencing again would end this one
        else:
            await asyncio.to_thread(_Writer(self._options, name).fence)

    def is_own(self, name: str) -> bool:
        """Whether a writer is, or was, one of this bridge."""
        return _id_of(name) == self._id

    async def close(self) -> None:
        """Finish the queued commits, and disconnect. Idempotent."""
        for task in (self._starting.running(None), self._working):
            if task is not None:
                await asyncio.wait([task])
        writer, self._writer = self._writer, None
        if writer is not None:
            await self._on_thread(writer.close)
        self._thread.shutdown(wait=False)

    async def _start(self) -> None:
        writer = _Writer(self._options, f"{self._id}{_NUMBER}{next(self._numbers)}")
        await self._on_thread(writer.start)
        self._writer = writer

    async def _work(self) -> None:
        try:
            while self._groups:
                await self._commit(self._gather())
        finally:
            self._working = None

    def _gather(self) -> list[_Group]:
        groups = [self._groups.popleft()]
        size = len(groups[0].records)
        while self._groups and not (groups[-1].alone or self._groups[0].alone):
            size += len(self._groups[0].records)
            if size > _RECORDS_MAX or self._groups[0].writer != groups[0].writer:
                break
            groups.append(self._groups.popleft())
        return groups

    async def _commit(self, groups: Sequence[_Group]) -> None:
        writer = self._writer
        if writer is None or writer.name != groups[0].writer:
            failure = CommitFailed(kafka.ProducerFencedError(), "", ending=False, alone=False)
            for group in groups:
                complete(group.future, None, failure)
            return
        records = [record for group in groups for record in group.records]
        try:
            stored = iter(await self._on_thread(lambda: writer.commit(records, alone=len(groups) == 1)))
        except CommitFailed as failed:
            self._writer = None
            with contextlib.suppress(Exception):  # a defect of the library; the next step fences the producer
                await self._on_thread(writer.close)
            for group in groups:
                complete(group.future, None, failed)
            return
        for group in groups:
            complete(group.future, [next(stored) for _ in group.records])

    async def _on_thread(self, do: Any) -> Any:  # noqa: ANN401 - what `do` returns
        return await asyncio.get_running_loop().run_in_executor(self._thread, do)


def _id_of(name: str) -> str:
    """Return the transactional id of a writer."""
    return name.rpartition(_NUMBER)[0] or name


class _Writer:
    """A transactional producer; blocking."""

    def __init__(self, options: Options, name: str) -> None:
        self.name = name
        self._options = options
        self._producer: Any = None

    def start(self) -> None:
        """Connect; a transaction that was open under the name has ended when this returns."""
        compression = None if self._options.compression == "none" else self._options.compression
        try:
            self._producer = producer = connect(
                KafkaProducer,
                self._options,
                transactional_id=_id_of(self.name),
                metrics_enabled=False,
                transaction_timeout_ms=_TIMEOUT,
                retry_backoff_ms=5,  # with the default of 100 a transaction takes 59 ms, with 5 it takes 12
                delivery_timeout_ms=6 * REQUEST_TIMEOUT,
                max_block_ms=3_000,
                max_request_size=_RECORD_MAX,
                batch_size=128 << 10,
                compression_type=compression,
            )
            # After some errors 3.0.12 gets itself a new epoch, on old brokers also if another has fenced this producer.
            producer._transaction_manager._supports_epoch_bump = lambda: False  # noqa: SLF001
            self._wait(producer._transaction_manager.initialize_transactions())  # noqa: SLF001
        except Exception as error:
            self.close()
            raise errors.of_exception(error, self.name) from error

    def fence(self) -> None:
        """Take the name away from whichever producer has it."""
        self.start()
        self.close()

    def commit(self, records: Sequence[Outgoing], *, alone: bool) -> list[Stored]:
        """Write all or none. Raises `CommitFailed`; then the writer is of no use any more."""
        producer, ending = self._producer, False
        transaction = producer._transaction_manager  # noqa: SLF001 - for the halves of its methods that do not wait
        try:
            producer.begin_transaction()
            sent = [
                producer.send(topic, value, key, list(headers), partition, timestamp)
                for topic, partition, timestamp, key, value, headers in records
            ]
            until = time.monotonic() + _PATIENCE
            found = [future.get(timeout=max(until - time.monotonic(), 0)) for future in sent]
            ending = True
            self._wait(transaction.begin_commit())
        except Exception as error:  # the library raises any exception
            topics = ", ".join(sorted({record.topic for record in records}))
            raise CommitFailed(transaction.last_error or error, topics, ending=ending, alone=alone) from error
        return [Stored(each.partition, each.offset) for each in found]

    def close(self) -> None:
        """Disconnect without waiting for an open transaction."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        with contextlib.suppress(kafka.KafkaError):
            producer.close(timeout=0)
        # Its `close` returns before it has stopped its thread if a record is still on its way.
        producer._closed = True  # noqa: SLF001
        producer._sender.force_close()  # noqa: SLF001
        producer._sender.join(1)  # noqa: SLF001

    def _wait(self, result: Any) -> None:  # noqa: ANN401 - has no type
        self._producer._sender.wakeup()  # noqa: SLF001
        if not result.wait(timeout_ms=_PATIENCE * 1000):
            raise kafka.KafkaTimeoutError
