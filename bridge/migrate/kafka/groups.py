"""What the consumer groups of a topic mean: who can go on where native consumers stopped. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

from bridge.engine.names import check_name
from bridge.errors import DestinationInvalid
from bridge.migrate.finding import Finding, Verdict
from bridge.migrate.kafka.facts import Group, Topic

_SHARED: Final = "cooperative-sticky"
_OFFERED: Final = (
    f"A bridge can join beside them only if they also offer {_SHARED} (Java's default does, kafka-python's does not):"
    " otherwise stop them all, then start the bridge's consumers."
)


def judge(topic: Topic, new_group: str) -> Iterator[Finding]:
    """Yield findings for each group. `new_group`: where one without an offset starts."""
    if topic.groups is None:
        said = "kafka-consumer-groups.sh --describe --all-groups shows them to somebody who may describe groups."
        yield Finding("groups", "the user may not list them", Verdict.UNKNOWN, said)
        return
    if not topic.groups:
        said = (
            f"A new consumer id starts at delivery.new_group, {new_group}; consumers that assign partitions are unseen."
        )
        yield Finding("groups", "none that this user may see", Verdict.WORKS, said)
    for group in topic.groups:
        yield from _judge(group, topic.bounds, new_group)


def _judge(group: Group, bounds: Mapping[int, tuple[int, int]], new_group: str) -> Iterator[Finding]:
    subject = f"group {group.name}"
    try:
        check_name(group.name, "x-oms-consumerid")
    except DestinationInvalid as error:
        said = (
            f"No request can name it ({error.detail}) Copy its offsets: kafka-consumer-groups.sh --export, --from-file."
        )
        yield Finding(subject, "its name", Verdict.FAILS, said)
        return
    yield _members(subject, group)
    yield _offsets(subject, group, bounds, new_group)


def _members(subject: str, group: Group) -> Finding:
    if group.kind not in {"", "classic"}:
        said = "Stop its native members first: a bridge joins by the classic protocol. The offsets stay."
        return Finding(subject, f"a group of the kind {group.kind}", Verdict.DIFFERS, said)
    if not group.members:
        return Finding(
            subject, "no members now", Verdict.WORKS, "Nothing to do: start consumers with it as consumer id."
        )
    seen = f"{group.members} members, assignor {group.assignor}"
    if group.assignor != _SHARED:
        return Finding(subject, seen, Verdict.DIFFERS, _OFFERED)
    return Finding(subject, seen, Verdict.WORKS, "Move consumers one by one: a bridge shares its partitions with them.")


def _offsets(subject: str, group: Group, bounds: Mapping[int, tuple[int, int]], new_group: str) -> Finding:
    lags = {part: end - max(group.committed[part], 0) for part, (_, end) in bounds.items() if part in group.committed}
    gone = sorted(part for part, (start, _) in bounds.items() if group.committed.get(part, start) < start)
    missing = sorted(bounds.keys() - group.committed.keys())
    offsets = ", ".join(f"{part}: {offset}" for part, offset in sorted(group.committed.items()))
    seen = f"lag {sum(lags.values())}, offsets {offsets or 'none'}"
    if gone:
        said = (
            f"Records below the oldest of partitions {gone} are gone already: its consumers are slower than retention."
        )
        return Finding(subject, seen, Verdict.DIFFERS, said)
    if missing:
        said = (
            f"Partitions {missing} have no offset: the bridge starts there at delivery.new_group, {new_group}, or at"
            " the oldest; a native consumer at its own auto.offset.reset."
        )
        return Finding(subject, seen, Verdict.DIFFERS, said)
    return Finding(subject, seen, Verdict.WORKS, "Nothing to do: the bridge goes on at these offsets.")
