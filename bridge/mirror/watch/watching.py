"""Everything that shows a mirror, wired for one job."""

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final, Literal

from adapters.clock import wall
from bridge.errors import CannotStart
from bridge.mirror.options import Options
from bridge.mirror.sources.base import Source
from bridge.mirror.watch import port, status
from bridge.mirror.watch.display import display, glyphs, terminal
from bridge.mirror.watch.events import Committed, Event, Stopped
from bridge.mirror.watch.listener import Listener, sentence
from bridge.mirror.watch.metrics import Metrics
from bridge.mirror.watch.notes import note
from bridge.mirror.watch.picture import summary
from bridge.mirror.watch.probe import probing
from bridge.mirror.watch.state import State, after
from bridge.settings import Address

PATIENCE: Final = 60_000
"""Outages that end within so many ms are nobody's business: `/readyz` says ready."""
_EVERY: Final = 5.0
"""Seconds between two versions of the status file while nothing happens."""

Show = Literal["auto", "lines", "quiet"]
"""A display where there is a terminal and a line a batch where there is none; lines; warnings only."""

_log = logging.getLogger(__name__)


class Watch:
    """What the job tells, from any thread. Nothing that goes wrong in showing it reaches the job."""

    def __init__(self, source: Source, *, batches: bool) -> None:
        self._lock = threading.Lock()
        self._batches = batches
        self._state = State(since=wall())
        self.metrics = Metrics(self.state)
        self.changed = threading.Event()
        """Set by every event."""
        self.listener = Listener(source.moved, self.tell)
        """For `spark.streams.addListener`."""
        self.metrics_at: Address | None = None
        """Where metrics are served, with the real port."""

    def state(self) -> State:
        """Return what is known now."""
        return self._state

    def observer(self, batch: Committed) -> None:
        """For the sink."""
        self.tell(batch)

    def tell(self, event: Event) -> None:
        """Take in an event."""
        try:
            with self._lock:  # also over the log: its lines are in the order of the events
                before, self._state = self._state, after(self._state, event)
                self.metrics.saw(event)
                note(event, before, self._state, batches=self._batches)
        except Exception:  # noqa: BLE001 - the job goes on whatever happens here
            _log.exception("an event could not be shown")
        self.changed.set()

    def summary(self) -> str:
        """Return what the run has done, in lines fit for standard output."""
        return summary(self._state, wall(), glyphs(sys.stdout.encoding))


@contextmanager
def watching(
    options: Options, source: Source, *, status_file: Path | None, metrics: Address | None, show: Show = "auto"
) -> Iterator[Watch]:
    """Watch a mirror while the block runs. Raises `CannotStart` for a file or an address that cannot be had.

    An exception that ends the block is the reason that is shown, but for `KeyboardInterrupt` and `SystemExit`.
    """
    console = terminal() if show == "auto" else None
    watch = Watch(source, batches=console is None and show != "quiet")
    about = status.about(options)
    with ExitStack() as stack:
        if status_file is not None:
            stack.enter_context(_keeping(status_file, lambda: status.document(watch.state(), about, wall()), watch))
        if metrics is not None:
            watch.metrics_at = stack.enter_context(port.serving(metrics, _pages(watch, about)))
        stack.enter_context(probing(source.bounds, watch.state, watch.tell))
        if console is not None:
            stack.enter_context(display(console, watch.state, about))
        try:
            yield watch
        except Exception as error:
            watch.tell(Stopped(sentence(str(error)) or type(error).__name__, wall()))
            raise
        finally:
            if watch.state().stopped is None:
                watch.tell(Stopped(None, wall()))


def _pages(watch: Watch, about: status.About) -> port.Pages:
    return {
        "/livez": partial(port.Answer, b"alive\n"),
        "/readyz": lambda: _ready(watch.state(), wall()),
        "/metrics": lambda: port.Answer(watch.metrics.exposition(), "text/plain; version=1.0.0; charset=utf-8"),
        "/status": lambda: port.Answer(
            json.dumps(status.document(watch.state(), about, wall())).encode(), "application/json"
        ),
    }


def _ready(state: State, moment: int) -> port.Answer:
    soon = state.waiting is not None and moment - state.waiting.when < PATIENCE
    if state.condition == "running" or (soon and state.stopped is None):
        return port.Answer(b"ready\n")
    reason = f": {state.reason}" if state.reason else ""
    text = f"not ready: the mirror is {state.condition}{reason}\n"
    return port.Answer(text.encode("utf-8", "replace"), status=HTTPStatus.SERVICE_UNAVAILABLE)


@contextmanager
def _keeping(path: Path, document: Callable[[], status.Document], watch: Watch) -> Iterator[None]:
    """Keep the file new in a thread of its own: a slow disk is not the job's trouble."""
    try:
        status.write(path, document())
    except OSError as error:
        raise CannotStart(f"the status file {path} cannot be written: {error.strerror}") from error
    over = threading.Event()

    def keep() -> None:
        well = True
        while not over.is_set():
            watch.changed.wait(_EVERY)
            watch.changed.clear()
            well = _kept(path, document(), well=well)

    thread = threading.Thread(target=keep, name="oms-mirror-status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        watch.changed.set()
        thread.join()
        _kept(path, document(), well=True)


def _kept(path: Path, document: status.Document, *, well: bool) -> bool:
    try:
        status.write(path, document)
    except OSError as error:
        if well:
            _log.warning("the status file cannot be written", extra={"path": str(path), "reason": error.strerror})
        return False
    return True
