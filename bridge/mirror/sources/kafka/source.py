"""Kafka as a source: Spark's own connector, and the bridge's own mapping behind it."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from adapters.kafka.names import Own
from adapters.kafka.options import parse
from adapters.kafka.record import Part
from bridge.errors import CannotStart
from bridge.mirror.offsets import Gap, Ranges
from bridge.mirror.rows import BATCH_BYTES, BATCH_ROWS
from bridge.mirror.schema import SOURCE_DDL
from bridge.mirror.sources import Options
from bridge.mirror.sources.kafka import errors
from bridge.mirror.sources.kafka.client import Offsets, TopicAdmin, java_settings
from bridge.mirror.sources.kafka.records import COLUMNS, convert, log_of, read_again

EARLIEST: Final = -2
"""The oldest offset, in the connector's `startingOffsets`."""


def read_offsets(text: str) -> dict[Part, int]:
    """Read offsets, also from Spark's file of those where everything began: it puts a NUL and `v1` before them."""
    topics = json.loads(text[text.index("{") :])
    return {Part(topic, int(partition)): at for topic, parts in topics.items() for partition, at in parts.items()}


def write_offsets(offsets: Offsets) -> str:
    """Write offsets."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), at in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = at
    return json.dumps(topics)


def starting_offsets(start: Mapping[str, int], parts: Iterator[Part]) -> str:
    """Write where to begin: the connector requires every partition, and no other."""
    return write_offsets({part: start.get(log_of(*part), EARLIEST) for part in parts})


def ranges_between(before: Offsets, after: Offsets) -> Ranges:
    """Return the ranges between two offsets; a new partition begins at 0."""
    starts = {part: before.get(part, 0) for part in after}
    return {log_of(*part): (starts[part], end) for part, end in after.items() if end > starts[part]}


def gaps_between(before: Offsets, after: Offsets, firsts: Offsets, recreated: frozenset[str]) -> Iterator[Gap]:
    """Yield the gaps between two offsets.

    `firsts`: the oldest offset of every partition that there is; `remade`: topics that were deleted and made again.
    """
    for part, start in before.items():
        end = after.get(part)
        if end is None:
            yield Gap(log_of(*part), start, None)
        elif end < start or part.topic in recreated:
            yield Gap(log_of(*part), start, None)
            if skipped := min(
                start, end
            ):  # of the new topic: the connector continues at the old offset, or at the new end
                yield Gap(log_of(*part), 0, skipped)
    for part, end in after.items():
        start = before.get(part, 0)
        first = firsts.get(part, end)
        if start < min(first, end):
            yield Gap(log_of(*part), start, min(first, end))


_ARROW: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
}
"""What is handed to Python at once: 10,000 records without a bound of their own are 10 GB of the largest ones."""
_REQUEST: Final = "10000"
"""Milliseconds for one question to the brokers; the connector asks three times, then it is an outage."""
_FETCH: Final = "30000"
"""Milliseconds in which a record must come; a task is tried four times. Nothing stops a task sooner while it waits."""
_FETCH_WAIT: Final = "1"
"""Milliseconds that a broker may hold a fetch without records: the connector asks for the end of the partition after
each fetch, on the same connection, and waited for the next fetch to return. With Kafka's default, 500, a task of 100
records took 0.5 to 1 s, and a batch of 1,000 partitions minutes."""
_TASKS: Final = 32
"""Tasks of a batch, and files, if there are more partitions: each task is a run of Python and a file of the table."""


class KafkaSource:
    """All topics of a cluster but for Kafka's own and the bridge's own."""

    def __init__(self, options: Options) -> None:
        """Raises `CannotStart` for a URL, a login or files with which Kafka cannot be read."""
        try:
            kafka = parse(options.backend)
        except ValueError as error:
            raise CannotStart(str(error)) from None
        self._options = options
        self._kafka = kafka
        self._pattern = pattern(Own(kafka.prefix))
        self._client = {"bootstrap.servers": ",".join(kafka.servers), **java_settings(kafka.security)}
        self._admin = TopicAdmin(kafka, self._pattern)
        self._topic_ids: dict[str, str] = {}
        """The id of each topic when it was last looked at."""

    def rows(self, spark: SparkSession, start: Mapping[str, int]) -> DataFrame:
        """Return the stream; see `Source`. Raises `BackendUnavailable` where `start` names a log."""
        for key, value in _ARROW.items():
            spark.conf.set(key, value)
        reader = spark.readStream.format("kafka").options(**self._settings(spark, start))
        tasks = max(_TASKS, spark.sparkContext.defaultParallelism)
        return reader.load().select(*COLUMNS).coalesce(tasks).mapInArrow(convert, SOURCE_DDL)

    def moved(self, before: str | None, after: str) -> Ranges:
        """Return the ranges between two offsets of the connector.

        Before the first batch is the text of `<checkpoint>/sources/0/0`, where Spark writes down what it begins with.
        Without it every partition is said to begin at 0. A range that regresses, of a recreated topic, is left out.
        """
        return ranges_between(_read(before), _read(after))

    def gaps(self, before: str | None, after: str) -> Iterable[Gap]:
        """Return the gaps between two offsets; see `moved`. Raises `BackendUnavailable`.

        A recreated topic is recognized if its offsets regress, or if its id changes while this source runs.
        """
        start, end = _read(before), _read(after)
        topics, firsts = self._admin.firsts([part for part, at in end.items() if at != start.get(part)])
        recreated = frozenset(each.name for each in topics if self._topic_ids.get(each.name, each.id) != each.id)
        self._topic_ids |= {each.name: each.id for each in topics}
        return tuple(gaps_between(start, end, firsts, recreated))

    def fallback_read(
        self, spark: SparkSession, before: str | None, after: str, error: BaseException
    ) -> DataFrame | None:
        """Return the rows of a batch that ended so, read by other means; None: they can only be read as before.

        A timestamp that Java reads as a time beyond the year 294247 fails the connector's batch each time.
        """
        if not errors.unreadable(error):
            return None
        return read_again(spark, self._kafka, ranges_between(_read(before), _read(after)))

    def bounds(self) -> Ranges:
        """Return the first offset and the last stable one of every partition. Raises `BackendUnavailable`."""
        firsts, nexts = self._admin.bounds()
        return {log_of(*part): (first, nexts[part]) for part, first in firsts.items()}

    def outage(self, error: BaseException) -> bool:
        """Whether a query ended because the brokers could not be reached: it is to be started again."""
        return errors.outage(error)

    def explain(self, error: BaseException) -> str | None:
        """Return the operator's sentence about the error that ended a query; None: it is none of Kafka's."""
        return errors.explain(error)

    def unmirrored(self) -> Mapping[str, str]:
        """See `Source`: there are none."""
        return {}

    def _settings(self, spark: SparkSession, start: Mapping[str, int]) -> dict[str, str]:
        return {
            **{f"kafka.{name}": value for name, value in self._client.items()},
            "kafka.isolation.level": "read_committed",
            "kafka.request.timeout.ms": _REQUEST,
            "kafka.default.api.timeout.ms": _REQUEST,
            "kafka.fetch.max.wait.ms": _FETCH_WAIT,
            "kafkaConsumer.pollTimeoutMs": _FETCH,
            "subscribePattern": self._pattern,
            "includeHeaders": "true",
            "startingOffsets": self._starting(start),
            "maxOffsetsPerTrigger": str(self._options.rows),
            "minPartitions": str(spark.sparkContext.defaultParallelism),
            "failOnDataLoss": str(self._options.on_data_loss == "fail").lower(),
        }

    def _starting(self, start: Mapping[str, int]) -> str:
        if not start:
            return "earliest"
        return starting_offsets(start, (part for topic in self._admin.topics() for part in topic.parts()))


def pattern(own: Own) -> str:
    """Return which topics are mirrored, for Java and Python; the connector looks for it anywhere in a name."""
    ours = "|".join((re.escape(own.notes), f"{re.escape(own.delay(''))}.*"))
    return rf"^(?!__|oms\.|(?:{ours})$).+$"


def _read(text: str | None) -> Offsets:
    return {} if text is None else read_offsets(text)
