"""The fetch side on librdkafka: what the event loop sees of a member of a consumer group."""

import asyncio
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from adapters.kafka.drivers.base import Member
from adapters.kafka.drivers.confluent.fetcher import Fetcher
from adapters.kafka.options import Options
from adapters.kafka.record import Commits, Part
from bridge.errors import OutcomeUnknown

_CLOSING: Final = 8.0
"""Seconds that leaving may take; where the brokers do not answer it ends by itself, later."""


class ConfluentConsumer:
    """See `drivers.base.Consumer`. One thread does it all.

    confluent-kafka 2.16 lets one thread at a time into a consumer, and whoever comes second tries again each ms: a
    commit of the event loop beside a thread that polls waited for 600 s, until it was killed.
    """

    def __init__(self, options: Options, group: str, topics: Sequence[str], member: Member) -> None:
        self._loop = asyncio.get_running_loop()
        self._group = group
        self._fetcher = Fetcher(self._loop, options, group, topics, member)

    async def join(self) -> None:
        """Join, and return when what lay in the first assignment has begun to arrive."""
        self._fetcher.start()
        try:
            await asyncio.shield(self._fetcher.joined)
        except BaseException:
            self._fetcher.stop({})
            await asyncio.shield(asyncio.wait((self._fetcher.ended,), timeout=_CLOSING))
            raise

    def commit(self, commits: Commits) -> asyncio.Future[None]:
        """Write positions."""
        written: asyncio.Future[None] = self._loop.create_future()
        self._fetcher.call(partial(self._fetcher.commit, commits, time.monotonic(), written))
        return written

    def pause(self, parts: Collection[Part]) -> None:
        """Stop fetching some partitions."""
        self._fetcher.call(partial(self._fetcher.pause, tuple(parts)))

    def resume(self, parts: Collection[Part]) -> None:
        """Go on fetching them."""
        self._fetcher.call(partial(self._fetcher.resume, tuple(parts)))

    async def close(self, commits: Commits) -> None:
        """Commit, leave, let go of threads and sockets. Raises `BackendUnavailable` or `OutcomeUnknown`."""
        first = self._fetcher.stop(commits)
        ended = self._fetcher.ended
        await asyncio.wait((ended,), timeout=_CLOSING)
        if not first:
            return
        if not ended.done():
            raise OutcomeUnknown(f"{self._group}: Kafka has not answered in time; the group is left when it does.")
        ended.result()
