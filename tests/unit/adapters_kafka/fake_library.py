"""What `Membership` needs, without a broker: a KafkaConsumer of which no coroutine ever waits, and a member."""

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import TypeVar
from uuid import UUID, uuid4

from kafka import errors
from kafka.future import Future
from kafka.structs import MemberState, OffsetAndMetadata, TopicPartition

from adapters.kafka.mapping import Commit, Commits, Part, Record
from bridge.errors import BridgeError

T = TypeVar("T")


def run(coroutine: Coroutine[object, object, T]) -> T:
    """Run a coroutine that does not wait for anything."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waits")


class FakeLibrary:
    """A KafkaConsumer with its coordinator, cluster, connections and loop in one object."""

    def __init__(self) -> None:
        self.written: list[dict[TopicPartition, int]] = []
        """The offsets of each commit."""
        self.refusal: Exception | None = None
        """The error of the next commits."""
        self.unreadable: Exception | None = None
        """The error of the next question for committed offsets."""
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.is_paused: set[TopicPartition] = set()
        self.ids: dict[str, UUID] = {}
        """Of topics; a topic that is not there gets one."""
        self.state = MemberState.STABLE
        self._coordinator = self._cluster = self._net = self._manager = self
        self.before_answer: Callable[[], object] = lambda: None
        """Called while the member is asked for its last commits: the event loop's work."""

    # As the consumer:

    def seek(self, *place: object) -> None: ...

    def seek_to_beginning(self, *places: object) -> None: ...

    def pause(self, *places: TopicPartition) -> None:
        self.is_paused.update(places)

    def resume(self, *places: TopicPartition) -> None:
        self.is_paused.difference_update(places)

    # As its coordinator:

    async def fetch_committed_offsets_async(
        self, places: Collection[TopicPartition], **_: object
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        error, self.unreadable = self.unreadable, None
        if error is not None:
            raise error
        return {place: self.committed[place] for place in places if place in self.committed}

    async def ensure_coordinator_ready_async(self, **_: object) -> bool:
        return True

    async def _send_offset_commit_request(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.written.append({place: at.offset for place, at in offsets.items()})

    # As its cluster:

    def topic_id(self, topic: str) -> UUID:
        return self.ids.setdefault(topic, uuid4())

    def request_update(self) -> Future:
        return Future().success(None)

    # As its connections and its loop:

    async def wait_for(self, future: Future, *_: object) -> object:
        if not future.is_done:
            self.before_answer()
        if not future.is_done:
            raise errors.KafkaTimeoutError
        return future.value

    def call_soon_threadsafe(self, call: Callable[[], Awaitable[None] | object]) -> None:
        result = call()
        if isinstance(result, Coroutine):
            run(result)


class Owner:
    """A `Member` that remembers what happens, and commits the same offset for all that is revoked."""

    def __init__(self) -> None:
        self.held: set[Part] = set()
        self.events: list[str] = []
        self.on_records: Callable[[Sequence[Record]], object] = lambda _: None

    def assigned(self, part: Part, committed: Commit | None) -> None:
        del committed
        self.held.add(part)
        self.events.append(f"assigned {part.partition}")

    def arrived(self, records: Sequence[Record]) -> None:
        self.events += [f"record of {each.partition}" for each in records]
        self.on_records(records)

    def revoked(self, parts: Collection[Part]) -> Commits:
        self.held.difference_update(parts)
        return dict.fromkeys(parts, Commit(3, ""))

    def lost(self, parts: Collection[Part]) -> None:
        self.held.difference_update(parts)
        self.events += [f"lost {part.partition}" for part in sorted(parts)]

    def failed(self, error: BridgeError) -> None:
        raise AssertionError(error)

    def ended(self, error: BridgeError) -> None:
        raise AssertionError(error)
