"""Options of the job. A named tuple of plain values: it travels to Spark's workers."""

from typing import Literal, NamedTuple

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
