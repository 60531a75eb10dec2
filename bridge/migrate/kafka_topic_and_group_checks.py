"""Checks a topic: do its settings suit a bridge, and can a bridge continue its consumer groups? Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from adapters.kafka.mapping import Record
from adapters.kafka.names import HIGH, LOW
from adapters.kafka.options import Options
from bridge.engine.destination_names import check_name, is_dead_letter
from bridge.errors import DestinationInvalid
from bridge.migrate.report import Finding, Verdict

_HOUR: Final = 3_600_000


class GroupFacts(NamedTuple):
    """A consumer group that has committed offsets for the topic, or whose members read it."""

    name: str
    kind: str
    """classic, consumer (KIP-848), share …; empty if the brokers do not say."""
    members: int
    assignor: str
    """The assignor in use; empty without members. The brokers do not say which others the members support."""
    committed: Mapping[int, int]
    """Partition to offset."""


class TopicFacts(NamedTuple):
    """The brokers' data about a topic. Times in milliseconds, sizes in bytes."""

    name: str
    partitions: int
    replicas: int
    """Of the partition with the fewest."""
    configs: Mapping[str, str]
    """Effective values, the brokers' defaults included; empty if the user may not read them."""
    bounds: Mapping[int, tuple[int, int]]
    """Partition to its oldest offset and the one after its newest visible record. A partition without a leader has no
    entry."""
    groups: Sequence[GroupFacts] | None
    """None: the user may not list them."""
    sample: Sequence[Record]
    """The newest records of each partition."""


def check_topic(topic: TopicFacts, options: Options, body_max: int) -> Iterator[Finding]:
    """Yield a finding for each setting. `body_max`: the largest body that the bridge accepts, bytes."""
    yield _check_name(topic.name, options)
    yield _check_partitions(topic)
    if options.lanes:
        yield Finding(
            "lanes",
            "the backend has lanes=true",
            Verdict.DIFFERS,
            f"Native programs use {topic.name} only: let them read and write {HIGH} and {LOW} as well, or set lanes"
            " after the last of them has moved.",
        )
    if not topic.configs:
        advice = "Ask a user who may describe configs: kafka-configs.sh --describe --topic shows them."
        yield Finding("settings", "the user needs DescribeConfigs on the topic", Verdict.UNKNOWN, advice)
        return
    yield _check_replicas(topic)
    yield _check_retention(topic)
    yield _check_cleanup(topic)
    yield _check_message_size(int(topic.configs["max.message.bytes"]), body_max)
    yield _check_timestamps(topic.configs["message.timestamp.type"])
    yield Finding(
        "compression",
        f"compression.type {topic.configs['compression.type']}",
        Verdict.WORKS,
        "Nothing to do: the bridge reads gzip, snappy, lz4 and zstd, and writes with the compression= of its URL.",
    )


def _check_name(name: str, options: Options) -> Finding:
    try:
        check_name(name, "name")
    except DestinationInvalid as error:
        advice = f"Copy it to another topic: no request can name it ({error.detail.rstrip('.')})."
        return Finding("name", name, Verdict.FAILS, advice)
    if name.startswith(options.prefix):
        advice = f"Give the backend another prefix=: the bridge reserves names that start with {options.prefix}."
        return Finding("name", name, Verdict.FAILS, advice)
    if is_dead_letter(name):
        advice = "Expect failing messages to be redelivered without limit: to the bridge the topic holds dead letters."
        return Finding("name", name, Verdict.DIFFERS, advice)
    return Finding("name", name, Verdict.WORKS, "Nothing to do: it is the name of the destination.")


def _check_partitions(topic: TopicFacts) -> Finding:
    leaderless = topic.partitions - len(topic.bounds)
    if leaderless:
        return Finding(
            "partitions",
            f"{topic.partitions}, {leaderless} of them without a leader",
            Verdict.FAILS,
            "Restart the brokers that have them, and check again: such a partition can be neither written nor read.",
        )
    advice = "Nothing to do: keys stay in their partitions; if there are more bridges than partitions, some are idle."
    return Finding("partitions", str(topic.partitions), Verdict.WORKS, advice)


def _check_replicas(topic: TopicFacts) -> Finding:
    min_insync = int(topic.configs["min.insync.replicas"])
    seen = f"{topic.replicas}, min.insync.replicas {min_insync}"
    if min_insync > topic.replicas:
        advice = "Lower min.insync.replicas or add replicas: otherwise each produce is 503."
        return Finding("replicas", seen, Verdict.FAILS, advice)
    if min_insync == topic.replicas > 1:
        advice = (
            "Expect 503 (not stored) for each produce while one broker is down; native producers with acks=1 continue."
        )
        return Finding("replicas", seen, Verdict.DIFFERS, advice)
    advice = "Nothing to do: 200 means that min.insync.replicas have the message; native producers may require fewer."
    return Finding("replicas", seen, Verdict.WORKS, advice)


def _check_retention(topic: TopicFacts) -> Finding:
    time, size = int(topic.configs["retention.ms"]), int(topic.configs["retention.bytes"])
    seen = ("no limit of time" if time < 0 else f"{time} ms") + (
        "" if size < 0 else f", {size} bytes of each partition"
    )
    if 0 <= time < _HOUR:
        advice = "Make it longer than consumers and their retries can take: Kafka deletes unsettled messages too."
        return Finding("retention", seen, Verdict.DIFFERS, advice)
    advice = "Nothing to do: after that time Kafka deletes messages, settled or not, as it does for native consumers."
    return Finding("retention", seen, Verdict.WORKS, advice)


def _check_cleanup(topic: TopicFacts) -> Finding:
    policy = topic.configs["cleanup.policy"]
    if "compact" in policy:
        return Finding(
            "cleanup policy",
            policy,
            Verdict.FAILS,
            "Leave its producers native and move only consumers: HTTP has no tombstones, Kafka refuses messages without"
            " a key, and compaction removes messages that a group has not settled.",
        )
    return Finding("cleanup policy", policy, Verdict.WORKS, "Nothing to do.")


def _check_message_size(message_max: int, body_max: int) -> Finding:
    seen = f"max.message.bytes {message_max}, limits.body {body_max}"
    if body_max < message_max:
        advice = "Raise limits.body to max.message.bytes if producers need it: the bridge answers 413 to larger bodies."
        return Finding("message size", seen, Verdict.DIFFERS, advice)
    advice = "Nothing to do: the bridge answers 413 to a message that is too large, headers included."
    return Finding("message size", seen, Verdict.WORKS, advice)


def _check_timestamps(kind: str) -> Finding:
    if kind == "LogAppendTime":
        advice = (
            "Expect the time of storing as bornTimestamp of native records: brokers replace the time of the producer."
        )
        return Finding("timestamps", kind, Verdict.DIFFERS, advice)
    advice = "Nothing to do: the timestamp of a native record becomes bornTimestamp and storeTimestamp."
    return Finding("timestamps", kind, Verdict.WORKS, advice)


_BRIDGE_ASSIGNOR: Final = "cooperative-sticky"
_OTHER_ASSIGNOR: Final = (
    f"Stop all its native members, then start the bridge's consumers, unless the members support {_BRIDGE_ASSIGNOR} as"
    " well (by default Java's client does, kafka-python does not)."
)


def check_groups(topic: TopicFacts, new_group: str) -> Iterator[Finding]:
    """Yield findings for each group. `new_group`: where a group without an offset starts."""
    if topic.groups is None:
        advice = "Ask a user who may describe groups: kafka-consumer-groups.sh --describe --all-groups shows them."
        yield Finding("groups", "the user may not list them", Verdict.UNKNOWN, advice)
        return
    if not topic.groups:
        advice = (
            f"Nothing to do: a new consumer id starts at delivery.new_group, {new_group}. Consumers without a group are"
            " not visible."
        )
        yield Finding("groups", "none that the user may see", Verdict.WORKS, advice)
    for group in topic.groups:
        yield from _check_group(group, topic.bounds, new_group)


def _check_group(group: GroupFacts, bounds: Mapping[int, tuple[int, int]], new_group: str) -> Iterator[Finding]:
    subject = f"group {group.name}"
    try:
        check_name(group.name, "x-oms-consumerid")
    except DestinationInvalid as error:
        advice = (
            "Copy its offsets to another group (kafka-consumer-groups.sh --export, --from-file): no request can name it"
            f" ({error.detail.rstrip('.')})."
        )
        yield Finding(subject, "its name", Verdict.FAILS, advice)
        return
    yield _check_members(subject, group)
    yield _check_offsets(subject, group, bounds, new_group)


def _check_members(subject: str, group: GroupFacts) -> Finding:
    if group.kind not in {"", "classic"}:
        advice = "Stop its native members first: a bridge joins by the classic protocol. The offsets stay."
        return Finding(subject, f"a group of the type {group.kind}", Verdict.DIFFERS, advice)
    if not group.members:
        advice = "Nothing to do: start consumers with this group as their consumer id."
        return Finding(subject, "no members now", Verdict.WORKS, advice)
    seen = f"{group.members} members, assignor {group.assignor}"
    if group.assignor != _BRIDGE_ASSIGNOR:
        return Finding(subject, seen, Verdict.DIFFERS, _OTHER_ASSIGNOR)
    advice = "Move its consumers one by one: native members and bridges share the partitions."
    return Finding(subject, seen, Verdict.WORKS, advice)


def _check_offsets(subject: str, group: GroupFacts, bounds: Mapping[int, tuple[int, int]], new_group: str) -> Finding:
    lags = {
        partition: end - max(group.committed[partition], 0)
        for partition, (_, end) in bounds.items()
        if partition in group.committed
    }
    expired = sorted(
        partition for partition, (start, _) in bounds.items() if group.committed.get(partition, start) < start
    )
    missing = sorted(bounds.keys() - group.committed.keys())
    offsets = ", ".join(f"{partition}: {offset}" for partition, offset in sorted(group.committed.items()))
    seen = f"lag {sum(lags.values())}, offsets {offsets or 'none'}"
    if expired:
        advice = (
            f"Make retention longer or the consumers faster: Kafka has deleted unread records of partitions {expired}."
        )
        return Finding(subject, seen, Verdict.DIFFERS, advice)
    if missing:
        advice = (
            f"Partitions {missing} have no offset: the bridge starts there at delivery.new_group, {new_group}, or at"
            " the oldest record; a native consumer starts at its auto.offset.reset."
        )
        return Finding(subject, seen, Verdict.DIFFERS, advice)
    return Finding(subject, seen, Verdict.WORKS, "Nothing to do: the bridge continues at these offsets.")
