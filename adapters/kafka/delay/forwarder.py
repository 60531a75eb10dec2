"""Moves delayed records on when their time has come: one thread, one member of the forwarders' group.

All that it knows is in Kafka: in the delay topics what waits, in the group's offsets and their marks what is done. So
it may be killed at any moment, and whoever gets its partitions goes on where the last transaction ended.
"""

import logging
import threading
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

from kafka import errors as kafka

from adapters.clock import wall
from adapters.kafka.delay.dispatch import Batch, Dispatch, Partitions
from adapters.kafka.delay.holding import Holding
from adapters.kafka.delay.intake import Intake
from adapters.kafka.delay.moving import MoveFailed, Mover
from adapters.kafka.delay.reading import Reading
from adapters.kafka.delay.schedule import LEVELS
from adapters.kafka.names import Own
from adapters.kafka.options import Options
from adapters.kafka.record import Commit, Part

_log = logging.getLogger("bridge.kafka")

_PAUSE: Final = 1.0
"""Seconds after a failure that is not one of a destination."""


class Forwarder:
    """`start`, `stop` and `join` are for other threads; so are `lows` and `figures`, to be read."""

    def __init__(self, options: Options, settings: Mapping[str, Any], instance: str, partitions: Partitions) -> None:
        """`settings` are those of every kafka-python client; `partitions` is called on the forwarder's thread.

        `instance` makes the transactional id: no other bridge may have it, the next run of this one should.
        """
        self._options = options
        self._settings = settings
        self._own = Own(options.prefix)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-forwarder", daemon=True)
        self._mover = Mover(settings, f"{self._own.forwarders}.{instance}", self._stopping)
        self._holding = Holding(0 if options.strict_delay else options.hold)
        self._dispatch = Dispatch(options, self._holding, partitions)
        self._troubled = False
        self._moved = 0
        self._dropped = 0
        self.lows: dict[Part, int] = {}
        """Below are only records that are done with."""

    @property
    def figures(self) -> Mapping[str, int]:
        """Records held in memory, records moved and dropped so far, and what cannot be written now."""
        return {
            "delayed_held": len(self._holding),
            "delayed_moved": self._moved,
            "delayed_expired": self._dropped,
            "delayed_put_off": self._dispatch.put_off,
        }

    def start(self) -> None:
        """Begin to join the group."""
        self._thread.start()

    def stop(self) -> None:
        """Begin to stop: what is being moved is moved to its end, if that comes soon."""
        self._stopping.set()

    def join(self, seconds: float) -> bool:
        """Wait until it has stopped; whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        levels = {self._own.delay(level.name): level for level in LEVELS}
        while not self._stopping.is_set():
            try:
                with (
                    closing(self._mover),
                    closing(Intake(self._settings, self._options, self._own.forwarders, levels)) as intake,
                ):
                    reading = Reading(intake, self._holding, levels, self.lows)
                    try:
                        self._go_on(reading)
                    finally:
                        reading.end()
            except kafka.KafkaError as error:
                self._tell(error)
            except Exception:  # noqa: BLE001 - a defect costs a pause, and not what waits
                _log.exception("The forwarder of delayed messages starts over.")
            self._stopping.wait(_PAUSE)

    def _go_on(self, reading: Reading) -> None:
        while not self._stopping.is_set():
            try:
                reading.take_in()
                self._move(reading)
                reading.feed()
            except (kafka.RetriableError, kafka.KafkaConnectionError) as error:  # the membership mends itself
                self._tell(error)
                reading.begin_anew()
                self._stopping.wait(_PAUSE)

    def _move(self, reading: Reading) -> None:
        """Move what is awake. Raises `KafkaError` where the brokers do not answer."""
        if not self._is_ready():
            return
        member = reading.member()
        if member is None:
            return
        for batch in self._dispatch.batches(wall()):
            commits = batch.commits()
            try:
                self._mover.move(batch.records, commits, member)
            except MoveFailed as failure:
                self._dispatch.failed(failure, batch)
                reading.begin_anew()
                if failure.fatal:
                    raise failure.reason from failure
                return
            self._note(batch, commits)

    def _is_ready(self) -> bool:
        if not self._mover.usable:
            try:
                self._mover.start()
            except kafka.KafkaError as error:
                self._tell(error)
                self._stopping.wait(_PAUSE)
                return False
            self._dispatch.blame(wall())
        return True

    def _note(self, batch: Batch, commits: Mapping[Part, Commit]) -> None:
        self._dispatch.succeeded(batch, wall())
        self._moved += len(batch.records)
        self._dropped += len(batch.held) - len(batch.records)
        self.lows.update({part: commit.offset for part, commit in commits.items()})
        if self._troubled:
            self._troubled = False
            _log.info("Delayed messages are forwarded again.")

    def _tell(self, error: BaseException) -> None:
        if not self._troubled and not self._stopping.is_set():
            self._troubled = True
            _log.warning(
                "Delayed messages are not forwarded for now; this is tried again. %s %s", type(error).__name__, error
            )
