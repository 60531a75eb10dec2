"""The thread that polls a librdkafka consumer, from its first connection to its last."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from adapters.kafka.drivers.base import Member
from adapters.kafka.drivers.confluent import errors
from adapters.kafka.drivers.confluent.membership import Call, Membership
from adapters.kafka.drivers.confluent.security import Settings, check, settings_of
from adapters.kafka.drivers.crossing import Crossing
from adapters.kafka.options import Options
from adapters.kafka.record import Commits, Part, Record
from bridge.errors import BackendUnavailable, BridgeError, CannotStart, Refused

_log = logging.getLogger(__name__)

_BATCH: Final = 500
_QUICK, _SLOW, _IDLE = 0.003, 0.02, 0.1
"""Seconds that a poll lasts. Nothing but its end wakes it for a commit or a resumption, so while one may come it is
short; where everything fetched is committed, none can."""
_QUICK_FOR: Final = 2.0
_AHEAD: Final = 1
"""Batches that the event loop may have yet to take. With the one in hand, and one that is being fetched, so much may
still arrive of each partition after a pause. Four took more memory and were no faster."""
_JOINING: Final = 40.0
"""Seconds: the broker waits for a member that was killed as long as its session lasts."""
_FIRST: Final = 3.0
"""Seconds in which the first record of each partition has to arrive."""
_AGAIN: Final = 0.2
"""Seconds after a poll that failed."""
_FETCH_WAIT: Final = 100
"""Milliseconds that a broker holds a fetch that finds nothing: a partition that is resumed waits for it to end."""
_FETCH_MAX: Final = 2 << 20
_QUEUE_MAX: Final = 2 << 10
"""KiB that are fetched ahead."""
_STUCK: Final = 30_000
"""Milliseconds: how long a rebalance waits for a member that lives but does not poll."""
_HEARTBEAT_MAX: Final = 1_000


class Fetcher:
    """One member of a group. What is called from the event loop is done by the thread between two polls."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, options: Options, group: str, topics: Sequence[str], member: Member
    ) -> None:
        self.joined: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        """Done when everything is let go of; raises what became of the last commit."""
        self._what = f"Kafka at {','.join(options.servers)}"
        self._options = options
        self._group = group
        self._topics = list(topics)
        self._member = member
        self._crossing: Crossing[Call] = Crossing(loop, lambda call: call())
        self._calls: deque[Call] = deque()
        self._stopping = threading.Event()
        self._final: Commits = {}
        self._ahead = threading.Semaphore(_AHEAD)
        self._membership = Membership(group, member, self._tell, self._stopping)
        self._thread = threading.Thread(target=self._run, name=f"kafka-{group}", daemon=True)
        # From here on the thread's own.
        self._client: Consumer | None = None
        self._paused: set[Part] = set()
        self._begun: set[Part] = set()
        self._has_joined = False
        self._first_by = 0.0
        self._owing = False
        self._active_at = 0.0
        self._reason = "no answer"
        self._outages = errors.Outages()
        self._told: int | None = None
        self._fatal: BridgeError | None = None

    # On the event loop

    def start(self) -> None:
        """Begin to join."""
        self._thread.start()

    def stop(self, final: Commits) -> bool:
        """Begin to leave, with a last commit; see `ended`. Returns False if that has begun before."""
        if self._stopping.is_set():
            return False
        self._final = final
        self._stopping.set()
        return True

    def call(self, call: Call) -> None:
        """Have something done on the thread, soon."""
        self._calls.append(call)
        if self.ended.done():
            self._serve()

    def _tell(self, call: Call) -> None:
        self._crossing.put(lambda: None if self._stopping.is_set() else call())

    def _arrived(self, records: list[Record]) -> None:
        self._ahead.release()
        if not self._stopping.is_set():
            self._member.arrived(records)

    def _finish(self, outcome: BaseException | None) -> None:
        self._serve()  # nobody else does any more
        _answer(self.ended, outcome if self.joined.done() else None)
        _answer(self.joined, outcome or self._left())

    # On the thread

    def commit(self, commits: Commits, asked_at: float, written: "asyncio.Future[None]") -> None:
        """Write positions, then answer the future."""
        if self._client is None:
            self._crossing.put(partial(_answer, written, self._left()))
            return
        answer = partial(partial, _answer, written)
        self._membership.commit(self._client, commits, asked_at, lambda error: self._crossing.put(answer(error)))

    def pause(self, parts: Sequence[Part]) -> None:
        """Stop fetching these."""
        self._paused.update(parts)
        if self._client is not None:
            self._client.pause(self._membership.places(parts))

    def resume(self, parts: Sequence[Part]) -> None:
        """Go on fetching these."""
        self._paused.difference_update(parts)
        if self._client is not None:
            self._client.resume(self._membership.places(parts))

    def _run(self) -> None:
        outcome: BaseException | None = None
        try:
            self._client = client = self._make()
            try:
                self._attend(client)
            finally:
                self._client = None
                outcome = self._leave(client)
        except CannotStart as error:
            outcome = error
        except BridgeError as error:
            outcome = error
            if self._has_joined:
                self._tell(partial(self._member.lost, set(self._membership.held)))
                self._tell(partial(self._member.failed, error))
        except Exception as error:  # noqa: BLE001 - a defect: said, and not left to whoever waits
            _log.exception("%s: the thread that fetches has failed", self._group)
            outcome = BackendUnavailable(f"{self._group}: {error!r}.")
        finally:
            self._crossing.put(partial(self._finish, outcome))

    def _make(self) -> Consumer:
        settings = _settings(self._options, self._group)
        calls = {"error_cb": self._failed, "on_commit": self._membership.on_commit}
        check(self._options.security)
        try:
            return Consumer(settings_of(self._options) | settings | calls)
        except KafkaException as refused:
            raise errors.of_creation(errors.reason_of(refused), self._what) from refused

    def _attend(self, client: Consumer) -> None:
        """Poll until all is to end. Raises what cannot be waited out."""
        membership = self._membership
        client.subscribe(
            self._topics, on_assign=membership.on_assign, on_revoke=membership.on_revoke, on_lost=membership.on_lost
        )
        give_up = time.monotonic() + _JOINING
        while not self._stopping.is_set():
            self._serve()
            self._poll(client)
            membership.look_after_commit(client)
            if self._fatal is not None:
                raise self._fatal
            if not self._has_joined:
                self._look_whether_begun()
                if not membership.assigned and time.monotonic() > give_up:
                    raise BackendUnavailable(f"{self._group}: not a member of the group yet: {self._reason}.")

    def _serve(self) -> None:
        while self._calls:
            self._calls.popleft()()
            self._active_at = time.monotonic()

    def _poll(self, client: Consumer) -> None:
        membership = self._membership
        membership.let_go = membership.wrote = False
        try:
            message = client.poll(self._wait())
            batch: list[Message] = [] if message is None else [message, *client.consume(_BATCH - 1, 0)]
        except KafkaException as failed:
            self._trouble(errors.reason_of(failed))
            self._stopping.wait(_AGAIN)
            return
        if membership.let_go:  # what was fetched of them in the same breath is not ours any more
            batch = [each for each in batch if (each.topic(), each.partition()) in membership.held or each.error()]
            self._paused &= membership.held
        if batch:
            self._hand_over(batch)
            self._owing = True
        elif membership.wrote:
            self._owing = membership.owing(client)

    def _wait(self) -> float:
        if self._calls:
            return 0.0
        if self._owing or self._paused or self._membership.committing:
            return _QUICK if time.monotonic() - self._active_at < _QUICK_FOR else _SLOW
        return _IDLE

    def _hand_over(self, batch: Sequence[Any]) -> None:
        records = []
        for each in batch:
            error = each.error()
            if error is None:
                records.append(_record(each))
            elif error.code() == errors.END:
                self._begun.add(Part(each.topic(), each.partition()))
            else:
                self._trouble(error)
        if not records:
            return
        self._told = None
        self._active_at = time.monotonic()
        while not self._ahead.acquire(timeout=_IDLE):
            if self._stopping.is_set():
                return
        self._crossing.put(partial(self._arrived, records))
        if not self._has_joined:
            self._begun.update(Part(each.topic, each.partition) for each in records)

    def _look_whether_begun(self) -> None:
        """Let `join` return once each partition has had a record, or has none; or when that takes too long."""
        if not self._membership.assigned:
            return
        self._first_by = self._first_by or time.monotonic() + _FIRST
        if self._membership.held <= self._begun or time.monotonic() > self._first_by:
            self._has_joined = True
            self._crossing.put(partial(_answer, self.joined, None))

    def _failed(self, error: KafkaError) -> None:
        """Hear from a poll of what is not about one partition."""
        if errors.fatal(error):
            self._fatal = BackendUnavailable(f"{self._group}: {error.str()}.")
        elif error.code() == errors.ALL_DOWN:
            problem = BackendUnavailable(f"{self._what}: {self._reason}.")
            if self._has_joined:
                if self._outages.new():
                    self._tell(partial(self._member.failed, problem))
            elif not self._membership.assigned:
                self._fatal = problem
        else:
            self._reason = error.str()

    def _trouble(self, error: KafkaError) -> None:
        """Say once what hinders; before the group is joined, what waiting will not mend ends it."""
        problem = errors.of_request(error, self._group)
        self._reason = error.str()
        if errors.fatal(error) or (not self._has_joined and isinstance(problem, Refused)):
            self._fatal = problem
        elif self._has_joined and self._told != error.code():
            self._told = error.code()
            self._tell(partial(self._member.failed, problem))

    def _leave(self, client: Consumer) -> BridgeError | None:
        """Write the last commit and say goodbye; return what became of the commit."""
        membership = self._membership
        outcomes: list[BridgeError | None] = []
        try:
            if self._final:
                membership.abandon()
                membership.commit(client, self._final, time.monotonic(), outcomes.append)
            while membership.committing:
                client.poll(_QUICK)
                membership.look_after_commit(client)
        finally:
            client.close()
            membership.abandon()
        return outcomes[0] if outcomes else None

    def _left(self) -> BridgeError:
        return BackendUnavailable(f"{self._group}: this bridge is not a member of the group now.")


def _answer(future: "asyncio.Future[None]", error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        future.exception()  # whoever gave up waiting is not to be warned of


def _record(message: Any) -> Record:  # noqa: ANN401 - its types say that any part may be None
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        _headers(message),
    )


def _headers(message: Any) -> Sequence[tuple[str, bytes]]:  # noqa: ANN401 - as above
    try:
        headers = message.headers()
    except (SystemError, UnicodeDecodeError):  # a name that is not UTF-8, which no client but a broken one writes
        return ()
    if not headers:
        return ()
    return [(name, b"" if value is None else value) for name, value in headers]


def _settings(options: Options, group: str) -> Settings:
    settings: Settings = {
        "group.id": group,
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": options.session,
        "heartbeat.interval.ms": min(options.session // 3, _HEARTBEAT_MAX),
        "max.poll.interval.ms": max(_STUCK, options.session),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,  # how a partition says that it holds nothing (more)
        "fetch.wait.max.ms": _FETCH_WAIT,
        "fetch.queue.backoff.ms": 5,  # with the library's second, a full queue stood still for as long
        "fetch.error.backoff.ms": 100,
        "fetch.max.bytes": _FETCH_MAX,
        "max.partition.fetch.bytes": 1 << 20,
        "queued.max.messages.kbytes": _QUEUE_MAX,
    }
    if options.instance is not None:
        settings["group.instance.id"] = options.instance
    return settings
