"""Whether the backend is there, while no rows come: a mirror that waits an outage out looks like an idle one."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from adapters.clock import wall
from bridge.errors import BackendUnavailable
from bridge.mirror.watch.events import Event, OutageBegan, OutageEnded
from bridge.mirror.watch.state import State

PAUSE: Final = 10.0
"""Seconds without rows before the backend is asked, and between two times."""
_SHARE: Final = 20
"""A backend of a thousand logs takes a while to answer: it is asked for a twentieth of the time at most."""

_log = logging.getLogger(__name__)


@contextmanager
def probing(
    ask: Callable[[], object], state: Callable[[], State], tell: Callable[[Event], None], pause: float = PAUSE
) -> Iterator[None]:
    """Ask while the block runs, in a thread of its own: `ask` raises `BackendUnavailable` when the backend is away."""
    over = threading.Event()

    def probe() -> None:
        wait = pause
        while not over.wait(wait):
            begun = time.monotonic()
            known = state()
            if known.waiting is not None or (known.runs and wall() - known.seen >= pause * 1000):
                _ask(ask, known, tell)
            wait = max(pause, _SHARE * (time.monotonic() - begun))

    # a daemon that nobody waits for: it may hang in a connection
    threading.Thread(target=probe, name="oms-mirror-probe", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _ask(ask: Callable[[], object], known: State, tell: Callable[[Event], None]) -> None:
    try:
        ask()
    except BackendUnavailable as error:
        tell(OutageBegan(error.detail, wall()))
    except Exception:  # noqa: BLE001 - a defect of a source is not to end the probing
        _log.exception("whether the backend is there could not be found out")
    else:
        if known.waiting is not None:
            tell(OutageEnded(wall()))
