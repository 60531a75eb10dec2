"""The fetch side on kafka-python: what the event loop sees of a member of a consumer group.

Three threads meet here. The event loop calls these methods. The poller's own thread is in `poll` for most of the time.
The library's IO thread runs the coroutines of `Membership`: commits, and what happens when partitions come and go.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from adapters.kafka.drivers.base import Member
from adapters.kafka.drivers.kafka_python.poller import Poller
from adapters.kafka.options import Options
from adapters.kafka.record import Commits, Part
from bridge.errors import BackendUnavailable

_CLOSING: Final = 6.0
"""Seconds that leaving may take; what has not ended by then does so by itself."""
_LAST_COMMIT: Final = 2.0
"""Seconds that a commit under way may take before."""


class KafkaPythonConsumer:
    """One member of one consumer group."""

    def __init__(self, options: Options, group: str, topics: Sequence[str], member: Member) -> None:
        self._loop = asyncio.get_running_loop()
        self._poller = Poller(self._loop, options, group, topics, member)
        self._committing: asyncio.Future[None] | None = None

    async def join(self) -> None:
        """Join, and return when what lay in the first assignment has begun to arrive.

        Raises `BackendUnavailable` or `Refused`; the consumer is closed then.
        """
        self._poller.start()
        try:
            await asyncio.shield(self._poller.joined)
        except BaseException:
            self._poller.stop({})
            await asyncio.shield(asyncio.wait((self._poller.ended,), timeout=_CLOSING))
            raise

    def commit(self, commits: Commits) -> asyncio.Future[None]:
        """Write positions. The future raises `BackendUnavailable` (not written) or `OutcomeUnknown`.

        Partitions that go away before it is sent are left out: what they needed was committed when they went.
        """
        self._committing = future = self._loop.create_future()
        self._poller.commit(commits, future)
        return future

    def pause(self, parts: Collection[Part]) -> None:
        """Stop fetching some partitions."""
        self._poller.pause(parts)

    def resume(self, parts: Collection[Part]) -> None:
        """Go on fetching them."""
        self._poller.resume(parts)

    async def close(self, commits: Commits) -> None:
        """Commit, leave, let go of threads and sockets. Raises `BackendUnavailable` or `OutcomeUnknown`."""
        if self._committing is not None:
            await asyncio.wait((self._committing,), timeout=_LAST_COMMIT)
        self._poller.stop(commits)
        ended = self._poller.ended
        await asyncio.wait((ended,), timeout=_CLOSING)
        if not ended.done():
            raise BackendUnavailable("Kafka has not answered in time: the group was left without a last commit.")
        if commits:
            ended.result()
