"""Where rows come from: one source for each backend, and the contract between the job and a source.

Promises common to all of them:

- A range of offsets once planned gives the same rows again after any restart.
- Nothing that a producer writes stops the job: what cannot be read is a row in quarantine (`Rows`).
- An outage is waited out: while the backend cannot be reached there is nothing new.
- `bounds` may be called from another thread while the query runs.
"""
# ruff: noqa: PLC0415 - each source brings the client library of its backend, an extra

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, Protocol

from pyspark.sql import DataFrame, SparkSession

from bridge.errors import CannotStart
from bridge.mirror.offsets import Gap, Ranges

OnDataLoss = Literal["fail", "record"]


class Options(NamedTuple):
    """How a mirror is run."""

    backend: str
    """URL of the backend, as for `serve`."""
    out: str
    """Any path that Spark can write: `/srv/mirror`, `s3a://…`."""
    bridge: str = "http://127.0.0.1:8080"
    """Where the bridge is whose memory is read; for `memory://` only."""
    checkpoint: str | None = None
    """None: `<out>/checkpoint`."""
    on_data_loss: OnDataLoss = "fail"
    """What to do when offsets are gone before they were read: stop and say so, or record the gap and go on."""
    rows: int = 200_000
    """At most so many rows a batch (> 0)."""
    every: float = 10.0
    """Seconds from one batch to the next while there is something to do."""
    resume: bool = False
    """Whether to begin a new checkpoint where the last commit ends: the way out where the old checkpoint is lost."""
    export: bool = False
    """Whether to export closed hours as plain Parquet while the job runs."""
    conf: tuple[str, ...] = ()
    """Settings of Spark, each `key=value`."""


class Source(Protocol):
    """Everything that one deployment of a backend keeps."""

    def rows(self, spark: SparkSession, start: Mapping[str, int]) -> DataFrame:
        """Return the stream of rows, of the columns `schema.SOURCE_DDL`.

        `start`: by log, the offset to begin at where there is no checkpoint yet; a log that is not in it begins with
        the oldest that is there. New logs are picked up as they come.
        """
        ...

    def moved(self, before: str | None, after: str) -> Ranges:
        """Return the ranges between two of this source's offsets, as Spark's checkpoint and progress hold them.

        Logs in which nothing moved are left out. `before` None: `after` is where the first batch ended.
        """
        ...

    def gaps(self, before: str | None, after: str) -> Iterable[Gap]:
        """Return the gaps in those ranges; called before the batch is read."""
        ...

    def bounds(self) -> Ranges:
        """Return the first offset kept and the next one of every log, now. Raises `BackendUnavailable`."""
        ...

    def outage(self, error: BaseException) -> bool:
        """Whether the error that ended a query is an outage: the same query is started again later."""
        ...

    def explain(self, error: BaseException) -> str | None:
        """Return the operator's sentence about the error; None: it is unknown, or an outage."""
        ...

    def unmirrored(self) -> Mapping[str, str]:
        """Return why destinations cannot be mirrored, by destination. It may take seconds.

        Raises `BackendUnavailable`.
        """
        ...


def open_source(options: Options) -> Source:
    """Build the source for the backend that the options name; nothing is connect yet. Raises `CannotStart`."""
    scheme = options.backend.partition(":")[0]
    try:
        match scheme:
            case "memory":
                from bridge.mirror.sources.memory import MemorySource

                return MemorySource(options)
            case "kafka":
                from bridge.mirror.sources.kafka.source import KafkaSource

                return KafkaSource(options)
            case "amqp" | "amqps":
                from bridge.mirror.sources.rabbitmq.source import RabbitMQSource

                return RabbitMQSource(options)
    except ValueError as error:
        raise CannotStart(f"backend: {error}") from None
    except ImportError as error:
        raise CannotStart(f"backend: {scheme}:// needs a library that is not installed: {error.name}.") from None
    raise CannotStart(f"backend: {scheme}:// cannot be mirrored; memory, kafka, amqp and amqps can.")
