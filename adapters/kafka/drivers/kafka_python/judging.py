"""What becomes of a batch that kafka-python could not send, or that a broker answered with an error."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kafka import errors as kafka
from kafka.producer.producer_batch import ProducerBatch
from kafka.producer.sender import Sender

from adapters.kafka import outcomes
from adapters.kafka.drivers.kafka_python import errors
from adapters.kafka.options import DELIVERY_TIMEOUT, UNSENT_TIMEOUT
from bridge.errors import BackendUnavailable, BridgeError, OutcomeUnknown

Verdict = Callable[[int], BridgeError]
"""The error for the record with this number within its batch: one of its own for each who waits."""


class Judge(Sender):  # type: ignore[misc] # has no types
    """A sender whose every error tells whether the record was stored. All of it runs on the sender's thread.

    Of each partition one batch is on its way at a time, so what fails is always the newest that has been sent.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:  # noqa: ANN401 - the library's own
        super().__init__(*args, guarantee_message_order=True, **settings)
        self._doubtful: set[ProducerBatch] = set()
        """Batches of which an earlier attempt may have been stored."""

    def _dispatch_error(self, batch: ProducerBatch, exception: Exception, partition_response: Any) -> None:  # noqa: ANN401
        """Judge one batch that was answered with an error, or not at all: split it, repeat it, or fail it."""
        code = errors.code_of(exception)
        if not outcomes.certain(code) and not isinstance(exception, kafka.NodeNotReadyError):  # that is before it left
            self._doubtful.add(batch)
        if self._can_split(batch, type(exception)) or self._can_retry(batch, type(exception)):
            super()._dispatch_error(batch, exception, partition_response)
            return
        topic = batch.topic_partition.topic
        guilty = frozenset[int]() if partition_response is None else _guilty(partition_response)
        self._fail(batch, lambda index: _verdict(code, topic, index, guilty))
        self._accumulator.muted.discard(batch.topic_partition)
        if isinstance(exception, kafka.InvalidMetadataError):
            self._metadata.request_update()

    def _can_retry(self, batch: ProducerBatch, error_cls: type[Exception]) -> bool:
        """Whether the same batch is sent again: never where that could store it twice. How long, `_expire` says."""
        if batch.final_state is not None or not issubclass(error_cls, kafka.RetriableError):
            return False
        return self._transaction_manager is not None or batch not in self._doubtful

    def _is_retention_based_unknown_producer_id(self, *_: object) -> bool:
        """Never: brokers since 2.5 take a batch of a producer that they have forgotten."""
        return False

    def _get_expired_inflight_batches(self, now: float | None = None) -> Sequence[ProducerBatch]:
        """None: what is on its way ends with its request, after `request_timeout_ms` at the latest."""
        del now
        self._in_flight_batches.clear()
        return []

    def _expire(self) -> None:
        """Fail what waits for too long. What is certainly not stored is told early, as it may safely be repeated."""
        now = time.monotonic()

        def overdue(batch: ProducerBatch) -> bool:
            patience = DELIVERY_TIMEOUT if batch in self._doubtful else UNSENT_TIMEOUT
            return bool(now - batch.created >= patience / 1000)

        self._fail_waiting(overdue, lambda topic: BackendUnavailable(f"{topic}: no broker takes messages for it now."))

    def _fail_waiting(self, which: Callable[[ProducerBatch], bool], verdict: Callable[[str], BridgeError]) -> None:
        """Fail batches that are not on their way just now."""
        accumulator = self._accumulator
        for part, batches in list(accumulator._batches.items()):  # noqa: SLF001 - as its own `expired_batches` does
            with accumulator._tp_lock(part):  # noqa: SLF001 - the same
                chosen = [batch for batch in batches if which(batch)]
                for batch in chosen:
                    batches.remove(batch)
                    batch.records.close()
            for batch in chosen:
                self._fail(batch, partial(_of_topic, verdict, part.topic))

    def _fail_everything(self) -> None:
        """Fail also what is on its way, which is unknown then: nobody listens for the answers any more."""
        said = "The connection to Kafka was closed before the message was sent."
        self._fail_waiting(lambda _: True, lambda _: BackendUnavailable(said))
        for batch in self._accumulator._incomplete.all():  # noqa: SLF001 - as its own `abort_batches` does
            self._doubtful.add(batch)
            self._fail(batch, lambda _: BackendUnavailable(said))

    def _fail(self, batch: ProducerBatch, verdict: Verdict) -> None:
        """Tell everybody who waits for a record of the batch, and keep the sequence of its partition whole."""
        transactions, part = self._transaction_manager, batch.topic_partition
        doubtful = batch in self._doubtful
        if transactions is not None and batch.has_sequence and transactions.producer_id_and_epoch.match(batch):
            if doubtful:
                # Which number comes next is anybody's guess: go on under a new identity. Batches that were sent under
                # the old one keep it, and when they are sent again the brokers still know whether they have them.
                transactions.reset_producer_id()
            else:
                transactions.set_sequence_number(part, batch.base_sequence)
        said = _unknown(part.topic) if doubtful else verdict
        batch.complete_exceptionally(said(0), said)
        self._doubtful.discard(batch)
        self._accumulator.deallocate(batch)


def _verdict(code: int, topic: str, index: int, guilty: frozenset[int]) -> BridgeError:
    """Of a batch that is refused for the sake of some records, the others are innocent and may come again."""
    if guilty and index not in guilty:
        return BackendUnavailable(f"{topic}: Kafka refused the message along with another one that came at its side.")
    return outcomes.of_produce(code, topic)


def _guilty(response: Any) -> frozenset[int]:  # noqa: ANN401 - a row of the protocol
    return frozenset(row.batch_index for row in response.record_errors or ())


def _of_topic(verdict: Callable[[str], BridgeError], topic: str, _index: int) -> BridgeError:
    return verdict(topic)


def _unknown(topic: str) -> Verdict:
    return lambda _: OutcomeUnknown(f"{topic}: Kafka has not said whether it stored the message.")
