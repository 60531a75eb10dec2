"""Stopping the job by SIGTERM or Ctrl-C: at once while it waits for its backend, else after what is under way."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequested(KeyboardInterrupt):
    """The job is to stop at once."""


class StopSignal:
    """The first signal that asked the job to stop. A second one ends the process."""

    def __init__(self) -> None:
        self.number: int | None = None
        """None: the job is to continue."""
        self.deferred = False
        """Whether the job looks at `number` regularly; else a signal raises `StopRequested`."""

    def install(self) -> None:
        """Handle the signals. Again after the start of Spark: PySpark replaces the handler of SIGINT."""
        for number in _SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        if not self.deferred:
            raise StopRequested


@contextmanager
def stop_signal() -> Iterator[StopSignal]:
    """Handle the signals while the block runs; `StopRequested` ends the block and is not raised further."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    stop = StopSignal()
    stop.install()
    try:
        yield stop
    except KeyboardInterrupt:
        stop.number = stop.number or signal.SIGINT  # PySpark's handler raises it too, until ours is installed again
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
