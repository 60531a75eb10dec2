"""Reads ranges of Kafka's logs: fetches from the leaders of all partitions of a task, and decodes only the ranges.

Offsets have holes: the marks of transactions, messages that were rolled back, and what compaction took. So offsets are
dropped only if the broker says that it no longer has the next one, or if the log is gone.

Records become the columns of every source by the mapping with which the bridge hands messages out. A batch or a record
that cannot be decoded is a row in quarantine.
"""

import gc
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final, NamedTuple

import pyarrow as pa
from kafka import KafkaAdminClient
from kafka import errors as kafka
from kafka.admin import OffsetSpec
from kafka.consumer.fetcher import IsolationLevel
from kafka.protocol.consumer import FetchRequest

from adapters.kafka import connections
from adapters.kafka.connections import Client, Connections
from adapters.kafka.mapping import READ, Part, Record, from_record
from adapters.kafka.options import Options
from adapters.kafka.record_batches import Batch, split_committed
from bridge.errors import BackendUnavailable
from bridge.mirror.offsets import Gap
from bridge.mirror.schema import BATCH_BYTES, Rows
from bridge.mirror.sources.kafka.topics import check_deleted, described, destination_of, offsets_of, part_of, topic_of
from bridge.mirror.sources.ranges import Split

BACKEND: Final = "kafka"
_PARTITION_BYTES: Final = 1 << 20
"""Bytes that a broker sends of one partition at once, if the first batch is no larger."""
_WAIT: Final = 500
"""Milliseconds that a broker waits for records: all of a range are there, unless a new leader lacks some."""
_BY_NAME: Final = 12
"""The newest version of a fetch that names topics; later ones, which brokers know since 3.1, have ids."""
_PAUSE: Final = 0.2
"""Seconds before a leader is looked for again."""
_IDLE: Final = 5.0
"""Seconds without progress after which it is asked whether the logs are still there."""
_PATIENCE: Final = 60.0
"""Seconds without progress after which reading is given up."""
_NULL: Final = b"\0null"
"""Stands for the value of a header that has none while its record is mapped."""


class _Fetched(NamedTuple):
    """What a broker answers about one partition."""

    part: Part
    error: int
    records: memoryview
    aborted: Sequence[tuple[int, int]]
    """Producer id and first offset of the aborted transactions among the records."""


class SplitReader:
    """Reads the splits of one task."""

    def __init__(self, options: Options, splits: Sequence[Split]) -> None:
        self._options = options
        self._left = {part_of(split.log): split for split in splits}
        """By partition, what is still to be read."""
        self._leaders: dict[Part, int] = {}
        """By partition, the node to fetch from. Empty: not known."""
        self._rows = Rows(BACKEND)
        self._progress = 0.0
        """When something was read last."""

    def read(self) -> Iterator[pa.RecordBatch | Gap]:
        """Yield rows and losses. Raises `BackendUnavailable` after a minute without any, and `CannotStart`."""
        clients: list[Client] = []
        try:
            with _without_gc(), closing(connections.connect(KafkaAdminClient, self._options, clients)) as admin:
                yield from self._read(admin, clients[0].connections)
        except (kafka.KafkaError, OSError) as error:
            raise described(error) from error
        if len(self._rows):
            yield self._rows.take()

    def _read(self, admin: KafkaAdminClient, brokers: Connections) -> Iterator[pa.RecordBatch | Gap]:
        looked = self._progress = time.monotonic()
        while self._left:
            now = time.monotonic()
            if now > self._progress + _PATIENCE:
                log, start, _ = next(iter(self._left.values()))
                raise BackendUnavailable(f"{log}, offset {start}: Kafka has sent nothing for {_PATIENCE:.0f} s.")
            try:
                if not self._leaders or now > max(self._progress, looked) + _IDLE:
                    looked = now
                    yield from self._find_leaders(admin)
                for fetched in brokers.run(self._fetch, brokers):
                    yield from self._take(admin, fetched)
            except (kafka.KafkaError, BackendUnavailable) as error:
                if isinstance(error, kafka.KafkaError) and not error.retriable:
                    raise
                self._leaders = {}
                time.sleep(_PAUSE)

    def _find_leaders(self, admin: KafkaAdminClient) -> Iterator[Gap]:
        """Ask which nodes to fetch from. Yields what is lost with logs that are gone.

        A topic that was created again has other messages at the same offsets.
        """
        found = admin.describe_topics(sorted({part.topic for part in self._left}))
        there = [topic for topic in found if topic["error_code"] == kafka.NoError.errno]
        check_deleted([topic for topic in found if topic not in there])
        logs = {log for topic in there for log in topic_of(topic).logs()}
        for part, split in [*self._left.items()]:
            if split.log not in logs:
                yield Gap(*self._left.pop(part))
        self._leaders = {
            Part(topic["name"], partition["partition_index"]): partition["leader_id"]
            for topic in there
            for partition in topic["partitions"]
        }

    async def _fetch(self, brokers: Connections) -> list[_Fetched]:
        """Fetch from all leaders at once. Raises `KafkaError`."""
        by_node: defaultdict[int, defaultdict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        for part, split in self._left.items():
            partition = FetchRequest.FetchTopic.FetchPartition(
                partition=part.partition,
                current_leader_epoch=-1,
                fetch_offset=split.start,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=_PARTITION_BYTES,
            )
            by_node[self._leaders[part]][part.topic].append(partition)
        if min(by_node, default=0) < 0:
            raise kafka.LeaderNotAvailableError
        answers = [brokers.send(_request(topics), node_id=node) for node, topics in by_node.items()]
        return [fetched for answer in answers for fetched in _read_answer(await answer)]

    def _take(self, admin: KafkaAdminClient, fetched: _Fetched) -> Iterator[pa.RecordBatch | Gap]:
        """Add the rows of one partition. Raises `KafkaError`."""
        part, code, records, aborted = fetched
        if code == kafka.OffsetOutOfRangeError.errno:
            split = self._left[part]  # the next offset was dropped, or the log ends before it
            first = offsets_of(admin, [part], OffsetSpec.EARLIEST)[part]
            end = min(first, split.end) if first > split.start else split.end
            yield Gap(split.log, split.start, end)
            self._move(part, end)
        elif code != kafka.NoError.errno:
            raise kafka.for_code(code)(part)
        for batch, is_committed in split_committed(records, aborted):
            if part not in self._left or batch.base >= self._left[part].end:
                return
            if is_committed and batch.next > self._left[part].start:
                yield from self._add(part, batch)
            self._move(part, batch.next)

    def _add(self, part: Part, batch: Batch) -> Iterator[pa.RecordBatch]:
        log, at, end = self._left[part]
        destination = destination_of(part.topic)
        try:
            for record in batch.decode(at, end):
                add(self._rows, part, record, destination, log)
                at = record.offset + 1
                if self._rows.full:
                    yield self._rows.take()
        except Exception as error:  # noqa: BLE001 - whatever a batch holds, it does not stop the job
            reason = f"the batch cannot be decoded: {type(error).__name__}: {error}"
            self._rows.add_bad(reason, bytes(batch.raw), destination, log, at)

    def _move(self, part: Part, to: int) -> None:
        split = self._left[part]
        if to > split.start:
            self._progress = time.monotonic()
            self._left[part] = split._replace(start=to)
        if to >= split.end:
            del self._left[part]


def _request(topics: dict[str, list[Any]]) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=_WAIT,
        min_bytes=1,
        max_bytes=BATCH_BYTES,
        isolation_level=IsolationLevel.READ_COMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=name, partitions=parts) for name, parts in topics.items()],
        forgotten_topics_data=[],
        rack_id="",
        min_version=FetchRequest.min_version_for_isolation_level(IsolationLevel.READ_COMMITTED),
        max_version=_BY_NAME,
    )


def _read_answer(response: Any) -> Iterator[_Fetched]:  # noqa: ANN401 - the library's
    for topic in response.responses:
        for found in topic.partitions:
            aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
            records = memoryview(found.records or b"")
            yield _Fetched(Part(topic.topic, found.partition_index), found.error_code, records, aborted)


def add(rows: Rows, part: Part, found: Any, destination: str, log: str) -> None:  # noqa: ANN401 - the library's
    """Add a record; one that cannot be mapped is a row in quarantine."""
    headers, has_null = found.headers, False
    for _, value in headers:  # without a generator: this is done for each record
        if value is None:
            has_null = True
            headers = [(name, _NULL if content is None else content) for name, content in headers]
            headers = [header for header in headers if header[1] is not _NULL or header[0] not in READ]
            break
    record = Record(*part, found.offset, found.timestamp, found.key, found.value, headers)
    try:
        message = from_record(record, destination)
    except Exception as error:  # noqa: BLE001 - whatever a record holds, it does not stop the job
        rows.add_bad(f"{type(error).__name__}: {error}", record.value or b"", destination, log, record.offset)
        return
    nulls = [name for name, text in message.properties.items() if text == _NULL.decode()] if has_null else ()
    rows.add(message, log, record.offset, is_tombstone=record.value is None, nulls=nulls)


@contextmanager
def _without_gc() -> Iterator[None]:
    """Keep the collector of cycles from searching: a record makes 30 objects and no cycle. It took half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
