"""What is committed on kafka-python's IO thread, and to which log it belongs."""

import contextlib
from typing import Final

from kafka import KafkaConsumer, errors
from kafka.structs import OffsetAndMetadata, TopicPartition

from adapters.kafka.client_errors import of_request
from adapters.kafka.outcomes import InstanceTaken
from adapters.kafka.record import Commits, Part
from bridge.errors import BackendUnavailable, OutcomeUnknown

_REACH: Final = 2_000
"""Milliseconds in which the coordinator must be found, and the topics' metadata come."""
_DOUBTFUL: Final = (
    errors.KafkaConnectionError,
    errors.KafkaTimeoutError,
    errors.RequestTimedOutError,
    errors.Cancelled,
)
"""The request may have reached the coordinator."""


class Rebalancing(BackendUnavailable):
    """Nothing was sent, because the group is rebalancing."""


class Offsets:
    """Writes the offsets of a group, by the coordinator's own coroutine, on the thread that it is made for.

    `commit_async` cannot be used: while the coordinator is being looked up it returns the future of the look-up, which
    says that all is well before anything was sent (3.0.12), and its queue of callbacks is emptied by two threads.
    """

    def __init__(self, consumer: KafkaConsumer, what: str) -> None:
        self.fenced = False
        """Whether a commit was refused because another has joined with the same instance."""
        self._coordinator = consumer._coordinator  # noqa: SLF001 - see above
        self._cluster = consumer._cluster  # noqa: SLF001 - it has the ids of topics
        self._logs: dict[Part, object] = {}
        """The id of the topic when a partition was assigned; None: the brokers have none (before 2.8)."""
        self._what = what

    def begin(self, part: Part) -> None:
        """Remember which log a partition has now."""
        self._logs[part] = self._log_of(part)

    async def write(self, commits: Commits) -> None:
        """Raises `BackendUnavailable`, `OutcomeUnknown`, or `Refused`."""
        if not commits:
            return
        offsets = {
            TopicPartition(*part): OffsetAndMetadata(at.offset, _terminated(at.metadata), -1)
            for part, at in commits.items()
        }
        try:
            reached = await self._coordinator.ensure_coordinator_ready_async(timeout_ms=_REACH)
        except errors.KafkaError as error:
            raise of_request(error, self._what) from error
        if not reached:
            raise BackendUnavailable(f"{self._what}: there is no connection to Kafka.")
        try:
            await self._coordinator._send_offset_commit_request(offsets)  # noqa: SLF001
        except errors.FencedInstanceIdError as error:
            self.fenced = True
            raise InstanceTaken(self._what) from error
        except errors.RebalanceInProgressError as error:
            raise Rebalancing(f"{self._what}: the group is rebalancing.") from error
        except errors.CommitFailedError as error:
            raise BackendUnavailable(f"{self._what}: this bridge is not a member of the group now.") from error
        except _DOUBTFUL as error:
            raise OutcomeUnknown(f"{self._what}: Kafka does not say whether it recorded them.") from error
        except errors.KafkaError as error:
            raise of_request(error, self._what) from error

    async def of_this_log(self, commits: Commits) -> Commits:
        """Leave out what belongs to a topic that is gone: a new one of its name must not begin with marks of the old.

        A topic that vanishes is one of the reasons for partitions to go, so the brokers are asked.
        """
        with contextlib.suppress(errors.KafkaError):
            await self._coordinator._manager.wait_for(self._cluster.request_update(), _REACH)  # noqa: SLF001
        return {part: at for part, at in commits.items() if not self.is_other(part, if_removed=True)}

    def is_other(self, part: Part, *, if_removed: bool) -> bool:
        """Whether a topic is not the one it was; `if_removed`: what to take it for if there is none at the moment."""
        now, then = self._log_of(part), self._logs.get(part)
        return then is not None and (if_removed if now is None else now != then)

    def _log_of(self, part: Part) -> object:
        found = self._cluster.topic_id(part.topic)
        return found if found is not None and found.int else None


def _terminated(text: str) -> str:
    """Return the text with a NUL behind it, as confluent-kafka writes it, because confluent-kafka reads up to a NUL.

    librdkafka adds none when it reads. Without one, confluent-kafka 2.16.1 returned the text with whatever followed it
    in memory, or raised UnicodeDecodeError: in a busy process 6 of 48 times.
    """
    return f"{text}\0" if text else ""
