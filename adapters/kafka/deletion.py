"""Deletes and purges destinations and groups for operators."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from adapters.kafka.admin import Admin
from adapters.kafka.delay.purges import Purges
from adapters.kafka.topics import Topics
from bridge.errors import BackendUnavailable, BridgeError, DestinationUnknown, OutcomeUnknown


class Deletion:
    """Changes topics and committed offsets. Each change can be repeated, also one that was broken off at any step.

    A deletion is stored before its first step: without its topics, only that record says that it has to be finished.

    A group exists for a destination if it has committed offsets of its topics: Kafka has no other record of it.
    """

    def __init__(self, admin: Admin, topics: Topics, purges: Purges) -> None:
        self._admin = admin
        self._topics = topics
        self._purges = purges

    async def purge(self, destination: str, group: str | None) -> None:
        """Delete all records of the topics, or commit their ends for a group, also for one that has no offsets yet."""
        topics = await self._topics.existing(destination)
        if group is not None:
            await self._admin.settle_all(group, topics)
            return
        await self._admin.purge(topics)
        with _begun():
            if await self._purges.purge(topics):  # meanwhile some may have been forwarded
                await self._admin.purge(topics)

    async def delete(self, destination: str, group: str | None) -> None:
        """Delete the topics, and with them their offsets of all groups, or the offsets of one group."""
        if group is None:
            await self._delete(destination)
            return
        topics = await self._topics.existing(destination)
        parts = [part for part in await self._admin.group_offsets(group) if part.topic in topics]
        if not parts:
            raise DestinationUnknown(f"{group}: the group has settled nothing of {destination}.")
        await self._admin.delete_group_offsets(group, parts)

    async def _delete(self, destination: str) -> None:
        broken_off = await self._broken_off(destination)
        delayed = await self._purges.begin(destination)
        topics = self._topics.of(destination)  # all: a deletion that was broken off may have left some
        try:
            await self._remove(topics)
            with _begun():
                if delayed:
                    await self._purges.purge(topics)
                    await self._remove(topics)  # meanwhile forwarding may have created a topic anew
                if delayed or broken_off:
                    await self._purges.finish(destination)
        finally:
            self._topics.forget(destination)

    async def _broken_off(self, destination: str) -> bool:
        """Return whether only the rest is to be deleted. Raises `DestinationUnknown` if there is nothing to delete."""
        try:
            await self._topics.existing(destination)
        except DestinationUnknown:
            if await self._purges.begun(destination):
                return True
            raise
        return False

    async def _remove(self, topics: Sequence[str]) -> None:
        try:
            await self._admin.delete_topics(topics)
            await self._topics.wait_until_removed(topics)
        except BackendUnavailable as error:
            raise OutcomeUnknown(error.detail) from error


@contextmanager
def _begun() -> Iterator[None]:
    """Raise `OutcomeUnknown` for every error of the bridge: a part has been done."""
    try:
        yield
    except BridgeError as error:
        raise OutcomeUnknown(f"{error.detail} A part of it has been done: repeat it.") from error
