"""Asks a backend regularly whether it can be used, so that an idle bridge notices an outage, too."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from bridge.errors import BridgeError

_INTERVAL: Final = 0.5
"""Seconds between an answer and the next question."""
_PATIENCE: Final = 1.0
"""Seconds without an answer after which the backend counts as lost, until it answers."""

_log = logging.getLogger(__name__)


class Probe:
    """One question at a time."""

    def __init__(self, ask: Callable[[], Awaitable[None]], unanswered: Callable[[], str]) -> None:
        """`ask` raises a `BridgeError` with the reason if the backend cannot be used, and ends after some seconds.

        `unanswered` returns the reason while the answer takes longer than `_PATIENCE`.
        """
        self._ask = ask
        self._unanswered = unanswered
        self._task: asyncio.Task[None] | None = None
        self.reason: str | None = None
        """Why the backend cannot be used, by the last question; None: it can."""

    def start(self) -> None:
        """Begin to ask. Idempotent."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Ask no more. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            asking = asyncio.ensure_future(self._ask())
            try:
                while not (await asyncio.wait((asking,), timeout=_PATIENCE))[0]:
                    self.reason = self._unanswered()
                asking.result()
            except BridgeError as error:
                self.reason = error.detail
                await asyncio.sleep(error.retry_after or _INTERVAL)
            except Exception:  # noqa: BLE001 - without the task, the last reason would stay
                _log.exception("internal error: a probe of the backend failed")
                await asyncio.sleep(_PATIENCE)
            else:
                self.reason = None
                await asyncio.sleep(_INTERVAL)
            finally:
                asking.cancel()
