"""What the settings of a topic mean for it once a bridge writes and reads it. Pure."""

from collections.abc import Iterator
from typing import Final

from adapters.kafka.names import HIGH, LOW
from adapters.kafka.options import Options
from bridge.engine.names import check_name, is_dead_letter
from bridge.errors import DestinationInvalid
from bridge.migrate.finding import Finding, Verdict
from bridge.migrate.kafka.facts import Topic

_HOUR: Final = 3_600_000
_READ: Final = "kafka-configs.sh --describe --topic shows them to somebody who may describe its configs"


def judge(topic: Topic, options: Options, body_max: int) -> Iterator[Finding]:
    """Yield a finding for each thing. `body_max`: the largest body that the bridge takes, bytes."""
    yield _name(topic.name, options)
    yield _partitions(topic)
    if options.lanes:
        yield Finding(
            "lanes",
            "the backend has lanes=true",
            Verdict.DIFFERS,
            f"Native programs know {topic.name} only: let them read and write {HIGH} and {LOW} too, or leave lanes off"
            " until the last of them is gone.",
        )
    if not topic.configs:
        yield Finding("settings", "the user may not describe them", Verdict.UNKNOWN, f"{_READ}.")
        return
    yield _replicas(topic)
    yield _retention(topic)
    yield _cleanup(topic)
    yield _size(int(topic.configs["max.message.bytes"]), body_max)
    yield _clock(topic.configs["message.timestamp.type"])
    yield Finding(
        "compression",
        f"compression.type {topic.configs['compression.type']}",
        Verdict.WORKS,
        "Nothing to do: the bridge reads gzip, snappy, lz4 and zstd, and writes as the compression of its URL says.",
    )


def _name(name: str, options: Options) -> Finding:
    try:
        check_name(name, "name")
    except DestinationInvalid as error:
        return Finding(
            "name", name, Verdict.FAILS, f"No request can name it ({error.detail}) Copy it to another topic."
        )
    if name.startswith(options.prefix):
        said = f"Names that start with {options.prefix} are the bridge's own: give the backend another prefix=."
        return Finding("name", name, Verdict.FAILS, said)
    if is_dead_letter(name):
        said = (
            "To the bridge it holds dead letters: what fails there is delivered again for ever, not buried once more."
        )
        return Finding("name", name, Verdict.DIFFERS, said)
    return Finding("name", name, Verdict.WORKS, "Nothing to do: it is the destination's name.")


def _partitions(topic: Topic) -> Finding:
    without = topic.partitions - len(topic.bounds)
    if without:
        return Finding(
            "partitions",
            f"{topic.partitions}, {without} of them without a leader",
            Verdict.FAILS,
            "Bring back the brokers that hold them, and look again: such a partition can be neither written nor read.",
        )
    said = "Nothing to do: the same keys lie in the same partitions; more bridges than partitions leave some idle."
    return Finding("partitions", str(topic.partitions), Verdict.WORKS, said)


def _replicas(topic: Topic) -> Finding:
    least = int(topic.configs["min.insync.replicas"])
    seen = f"{topic.replicas}, min.insync.replicas {least}"
    if least > topic.replicas:
        said = (
            "Lower min.insync.replicas or add replicas: the bridge waits for all of them and would answer 503 always."
        )
        return Finding("replicas", seen, Verdict.FAILS, said)
    if least == topic.replicas > 1:
        said = (
            "With one broker away every produce is 503, not stored; native producers with acks=1 did not notice that."
        )
        return Finding("replicas", seen, Verdict.DIFFERS, said)
    said = (
        "Nothing to do: a 200 means that as many replicas have the message; native producers may have asked for less."
    )
    return Finding("replicas", seen, Verdict.WORKS, said)


def _retention(topic: Topic) -> Finding:
    time, size = int(topic.configs["retention.ms"]), int(topic.configs["retention.bytes"])
    kept = "without a limit of time" if time < 0 else f"{time} ms"
    seen = f"{kept}{'' if size < 0 else f', {size} bytes of each partition'}"
    if 0 <= time < _HOUR:
        said = "What a group has not settled by then is gone: make it longer than consumers and their retries may take."
        return Finding("retention", seen, Verdict.DIFFERS, said)
    said = "Nothing to do: it counts as before; what a group has not settled by then is gone, as for native consumers."
    return Finding("retention", seen, Verdict.WORKS, said)


def _cleanup(topic: Topic) -> Finding:
    policy = topic.configs["cleanup.policy"]
    if "compact" in policy:
        return Finding(
            "cleanup policy",
            policy,
            Verdict.FAILS,
            "Leave its producers native, move only consumers: HTTP has no tombstone, a message without a key is"
            " refused, and compaction takes what a group has not settled yet.",
        )
    return Finding("cleanup policy", policy, Verdict.WORKS, "Nothing to do.")


def _size(largest: int, body_max: int) -> Finding:
    seen = f"max.message.bytes {largest}, limits.body {body_max}"
    if body_max < largest:
        said = "Raise limits.body to max.message.bytes if producers need it: the bridge answers 413 beyond limits.body."
        return Finding("message size", seen, Verdict.DIFFERS, said)
    said = "Nothing to do: a record that is too large is answered 413, headers included."
    return Finding("message size", seen, Verdict.WORKS, said)


def _clock(kind: str) -> Finding:
    if kind == "LogAppendTime":
        said = "The brokers' clock replaces a producer's: a native record's bornTimestamp is when the broker had it."
        return Finding("timestamps", kind, Verdict.DIFFERS, said)
    said = "Nothing to do: a native record's timestamp becomes bornTimestamp and storeTimestamp."
    return Finding("timestamps", kind, Verdict.WORKS, said)
