"""A native consumer of committed records that reads topics all the time, also while their broker is killed."""

import threading
from collections.abc import Sequence
from contextlib import closing
from types import TracebackType
from typing import Self

from kafka import KafkaConsumer, TopicPartition

from adapters.kafka.mapping import Record, fetched


class Watcher:
    """Use it as a context manager: at its end it has read all that is committed."""

    def __init__(self, servers: str, topics: Sequence[str]) -> None:
        self.records: list[Record] = []
        """In the order in which they came; within a partition that of their offsets."""
        self._servers = servers
        self._topics = topics
        self._last = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._last.set()
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def _read(self) -> None:
        try:
            self._read_all()
        except Exception as error:  # noqa: BLE001 - raised at the end
            self._failure = error

    def _read_all(self) -> None:
        settings = {"isolation_level": "read_committed", "reconnect_backoff_max_ms": 500, "enable_auto_commit": False}
        with closing(KafkaConsumer(bootstrap_servers=self._servers, **settings)) as consumer:
            consumer.assign([TopicPartition(t, p) for t in self._topics for p in consumer.partitions_for_topic(t)])
            consumer.seek_to_beginning()
            while not self._last.is_set():
                self._poll(consumer)
            ends = consumer.end_offsets(consumer.assignment())
            while any(consumer.position(part) < end for part, end in ends.items()):
                self._poll(consumer)

    def _poll(self, consumer: KafkaConsumer) -> None:
        for records in consumer.poll(timeout_ms=200).values():
            self.records += map(fetched, records)
