"""The job: one streaming query from a source into the sink, begun again after an outage, ended in order."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from adapters.clock import wall
from bridge.errors import BackendUnavailable, CannotStart
from bridge.mirror import layout
from bridge.mirror.options import Options
from bridge.mirror.session import session, submitted
from bridge.mirror.sink import full
from bridge.mirror.sink.catalogue import load
from bridge.mirror.sink.check import check, start
from bridge.mirror.sink.checkpoint import Checkpoint
from bridge.mirror.sink.files import Files
from bridge.mirror.sink.publish import recover
from bridge.mirror.sink.sink import Sink
from bridge.mirror.sources import jars_for, open_source
from bridge.mirror.sources.base import Selective, Source
from bridge.mirror.watch.events import OutageBegan, Unmirrored
from bridge.mirror.watch.listener import sentence
from bridge.mirror.watch.watching import Show, Watch, watching
from bridge.settings import Address

QUERY: Final = "oms-mirror"
_LOOK: Final = 0.5
"""Seconds between two looks whether somebody wants it to end."""
_PARTING: Final = 30.0
"""Seconds that a batch under way has to end by itself; one that is cut short is written anew by the next run."""
_PAUSE: Final = 5.0
"""Seconds from an outage to the next attempt."""


class Shown(NamedTuple):
    """What is shown of the job, and where."""

    status: Path | None = None
    metrics: Address | None = None
    show: Show = "auto"


class _Asked:
    """Whether somebody has asked the job to end."""

    def __init__(self) -> None:
        self.yes = False

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        self.yes = True
        signal.signal(_signal, signal.SIG_DFL)  # whoever asks twice does not want to wait


def run(options: Options, shown: Shown, *, once: bool) -> Watch:
    """Mirror until SIGTERM or Ctrl-C; with `once` until all that was there is mirrored. Returns what was seen.

    Raises `CannotStart` for whatever an operator has to mend, before the start or on the way.
    """
    source = open_source(options)
    with (
        _asking() as asked,
        watching(options, source, status_file=shown.status, metrics=shown.metrics, show=shown.show) as watch,
        session("oms-bridge mirror", () if submitted() else jars_for(options)) as spark,
    ):
        spark.streams.addListener(watch.listener)
        files = Files(spark, options.out)
        checkpoint = Files(spark, options.checkpoint or files.path(layout.CHECKPOINT).toString())
        recover(files, Checkpoint(checkpoint).query())
        catalogue = load(files)
        check(files, checkpoint, catalogue, resume=options.resume)
        sink = Sink(files, checkpoint, catalogue, source, watch.observer)
        query = _Query(
            lambda: source.rows(spark, start(catalogue)), sink, checkpoint.out, None if once else options.every
        )
        _tell_unmirrored(source, watch)
        _supervise(query, source, watch, asked)
    return watch


def _tell_unmirrored(source: Source, watch: Watch) -> None:
    if isinstance(source, Selective):
        with suppress(BackendUnavailable):  # the query will find that out, and wait
            watch.tell(Unmirrored(source.unmirrored()))


class _Query:
    """The query as it is begun, each time."""

    def __init__(self, rows: Callable[[], DataFrame], sink: Sink, checkpoint: str, every: float | None) -> None:
        self._rows = rows
        self.sink = sink
        self._checkpoint = checkpoint
        self._every = every

    def begin(self) -> StreamingQuery:
        writer = self._rows().writeStream.queryName(QUERY).foreachBatch(self.sink)
        if self._every is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._every} seconds")
        return writer.option("checkpointLocation", self._checkpoint).start()


def _supervise(query: _Query, source: Source, watch: Watch, asked: _Asked) -> None:
    """Run the query to its end, over every outage of the backend."""
    while True:
        try:
            _follow(query.begin(), asked)
        except Exception as error:
            if (told := query.sink.failed or full.explain(error, query.sink.out)) is not None:
                raise told from None
            if (said := source.explain(error)) is not None:
                raise CannotStart(said) from error
            if not source.outage(error):
                raise
            watch.tell(OutageBegan(sentence(str(error)), wall()))
        else:
            return
        if _pause(asked):
            return


def _follow(query: StreamingQuery, asked: _Asked) -> None:
    while not query.awaitTermination(_LOOK):  # type: ignore[arg-type] # PySpark's own check takes float, its hint int
        if asked.yes:
            until = time.monotonic() + _PARTING
            while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
                time.sleep(_LOOK)
            query.stop()
            return


def _pause(asked: _Asked) -> bool:
    """Wait before the next attempt; True if there shall be none."""
    until = time.monotonic() + _PAUSE
    while not asked.yes and time.monotonic() < until:
        time.sleep(_LOOK)
    return asked.yes


@contextmanager
def _asking() -> Iterator[_Asked]:
    asked = _Asked()
    before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
