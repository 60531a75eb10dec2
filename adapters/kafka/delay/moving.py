"""Moves delayed records to their next places: in one transaction with the offsets of the places they leave.

Blocking, for the forwarder's thread. Whatever goes wrong, the producer is given up and the next one, under the same
transactional id, ends what it left behind: so a transaction whose end nobody heard of is known to be over before the
committed offsets are read again.
"""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka import errors as kafka
from kafka.structs import ConsumerGroupMetadata

from adapters.kafka.delay.connecting import connect
from adapters.kafka.options import REQUEST_TIMEOUT
from adapters.kafka.record import Commits, Outgoing

PATIENCE: Final = 5.0
"""Seconds for each step of a transaction. The library alone waits for ever, also for a topic that was deleted."""
TRANSACTION_TIMEOUT: Final = 10_000
"""Milliseconds after which the brokers end the transaction of a bridge that was killed: until then those who read
committed records of a destination wait."""
_STEP: Final = 0.1
"""Seconds between two looks at whether the bridge is stopping."""
_WHEN_STOPPING: Final = 2.0
_LARGEST: Final = 256 * 1024 * 1024
"""Bytes of a record. The brokers say what is too large: here it has to be above all that they took before."""

_OF_RECORDS: Final = (
    *(kafka.MessageSizeTooLargeError, kafka.RecordListTooLargeError, kafka.InvalidRecordError),
    *(kafka.InvalidTimestampError, kafka.UnsupportedForMessageFormatError, ValueError, TypeError),
)
"""What a destination says against single records."""
_OF_US: Final = (
    *(kafka.CommitFailedError, kafka.ProducerFencedError, kafka.FencedInstanceIdError, kafka.InvalidTxnStateError),
    *(kafka.GroupAuthorizationFailedError, kafka.TransactionalIdAuthorizationFailedError),
)
"""What has nothing to do with what was to be written."""


class MoveFailed(Exception):
    """Nothing was moved, or it is not known."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__(f"{type(reason).__name__} {reason}".strip())
        self.reason = reason
        self.topics = _refused(reason)
        """Topics that certainly cannot be written now."""
        self.of_record = isinstance(reason, _OF_RECORDS)
        """A record was refused, and not its topic; which one is not said."""
        self.of_us = isinstance(reason, _OF_US)
        """Another bridge has the partitions or the name now: no record is to blame."""
        self.fatal = self.of_us and not isinstance(reason, kafka.CommitFailedError)
        """It does not mend by reading the committed offsets again."""


class Mover:
    """A transactional producer, replaced when it fails. Used by one thread; `stopping` may be set by any."""

    def __init__(self, settings: Mapping[str, Any], transactional_id: str, stopping: threading.Event) -> None:
        self._settings = {
            **settings,
            "transactional_id": transactional_id,
            "transaction_timeout_ms": TRANSACTION_TIMEOUT,
            "acks": "all",
            "retry_backoff_ms": 5,  # with the default of 100 a transaction takes 59 ms, with 5 it takes 12
            "delivery_timeout_ms": 6 * REQUEST_TIMEOUT,
            "max_block_ms": 3000,
            "max_request_size": _LARGEST,
            "batch_size": 131_072,
        }
        self._stopping = stopping
        self._producer: KafkaProducer | None = None
        self.usable = False
        """Whether `start` was called since the last failure."""

    def start(self) -> None:
        """Connect in the place of an earlier producer, whose transaction is over when this returns."""
        self.close()
        self._producer = connect(KafkaProducer, self._settings)
        self._producer.init_transactions()
        self.usable = True

    def move(self, records: Sequence[Outgoing], commits: Commits, member: ConsumerGroupMetadata) -> None:
        """Write the records and commit the offsets, both or neither. Raises `MoveFailed`; call `start` after it."""
        producer = self._producer
        if producer is None:
            raise RuntimeError("move before start")
        offsets = {
            TopicPartition(*part): OffsetAndMetadata(commit.offset, commit.metadata, -1)
            for part, commit in commits.items()
        }
        transaction = producer._transaction_manager  # noqa: SLF001 - for the halves of its methods that do not wait
        try:
            producer.begin_transaction()
            sent = [_send(producer, record) for record in records]
            self._wait(producer, transaction.send_offsets_to_transaction(offsets, member))
            self._wait_for_all(sent)
            self._wait(producer, transaction.begin_commit())
        except Exception as error:  # the library raises what it likes; whatever it is, the transaction is given up
            self.usable = False
            raise MoveFailed(transaction.last_error or error) from error

    def close(self) -> None:
        """Give up the producer, and a transaction that it has not ended. Idempotent, and takes a second at most."""
        producer, self._producer = self._producer, None
        self.usable = False
        if producer is None:
            return
        with contextlib.suppress(kafka.KafkaError):
            producer.close(timeout=0)
        # Its `close` gives up where a record is still on its way, before it has stopped its thread.
        producer._closed = True  # noqa: SLF001
        producer._sender.force_close()  # noqa: SLF001
        producer._sender.join(1)  # noqa: SLF001

    def _wait(self, producer: KafkaProducer, result: Any) -> None:  # noqa: ANN401 - has no type
        producer._sender.wakeup()  # noqa: SLF001
        for step in self._steps():
            if result.wait(timeout_ms=step * 1000):
                return

    def _wait_for_all(self, sent: Sequence[Any]) -> None:
        steps = self._steps()
        step = next(steps)
        for future in sent:
            while not future.is_done:
                with contextlib.suppress(kafka.KafkaTimeoutError):
                    future.get(timeout=step)
                    break
                step = next(steps)
            if future.failed():
                raise future.exception

    def _steps(self) -> Iterator[float]:
        """Yield seconds to wait, again and again. Raises `KafkaTimeoutError` when patience is at its end."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            yield _STEP
            if self._stopping.is_set():
                until = min(until, time.monotonic() + _WHEN_STOPPING)
        raise kafka.KafkaTimeoutError("the transaction does not come to its end")


def _send(producer: KafkaProducer, record: Outgoing) -> Any:  # noqa: ANN401 - a future without a type
    return producer.send(
        record.topic, record.value, record.key, list(record.headers), record.partition, record.timestamp
    )


def _refused(reason: BaseException) -> frozenset[str]:
    if not isinstance(reason, kafka.TopicAuthorizationFailedError):
        return frozenset()
    said = reason.args[0] if reason.args else ()
    return frozenset([said] if isinstance(said, str) else said or ())
