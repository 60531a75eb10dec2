"""The contract between the job and a source: seven methods.

Promises common to all of them:

- A range of offsets once planned gives the same rows again after any restart.
- Nothing that a producer writes stops the job: what cannot be read is a row in quarantine (`Rows`).
- An outage is waited out: while the backend cannot be reached there is nothing new.
- `bounds` may be called from another thread while the query runs.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession

from bridge.mirror.offsets import Gap, Ranges


class Source(Protocol):
    """Everything that one deployment of a backend keeps."""

    def rows(self, spark: SparkSession, start: Mapping[str, int]) -> DataFrame:
        """Return the stream of rows, of the columns `schema.SOURCE_DDL`.

        `start`: by log, the offset to begin at where there is no checkpoint yet; a log that is not in it begins with
        the oldest that is there. New logs are picked up as they come.
        """
        ...

    def moved(self, before: str | None, after: str) -> Ranges:
        """Return what lies between two of this source's offsets, as Spark's checkpoint and progress hold them.

        Logs in which nothing moved are left out. `before` None: `after` is where the first batch ended.
        """
        ...

    def gaps(self, before: str | None, after: str) -> Iterable[Gap]:
        """Return what of that range was gone before it could be read; asked before the batch is read."""
        ...

    def bounds(self) -> Ranges:
        """Return the first offset kept and the next one of every log, now. Raises `BackendUnavailable`."""
        ...

    def fallback_read(
        self, spark: SparkSession, before: str | None, after: str, error: BaseException
    ) -> DataFrame | None:
        """Return what lies between two offsets, read by other means where reading it ended so; None: there are none."""
        ...

    def outage(self, error: BaseException) -> bool:
        """Whether the error that ended a query is an outage: the same query is started again later."""
        ...

    def explain(self, error: BaseException) -> str | None:
        """Return the operator's sentence about what ended a query; None: it is not known, or an outage."""
        ...


@runtime_checkable
class Selective(Protocol):
    """Optional power of a source: it finds destinations that cannot be mirrored."""

    def unmirrored(self) -> Mapping[str, str]:
        """Return why not, by destination. It may take seconds. Raises `BackendUnavailable`."""
        ...
