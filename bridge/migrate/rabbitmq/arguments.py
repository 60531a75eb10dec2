"""What each argument of a queue means for it once a bridge consumes it. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

from bridge.migrate.finding import Finding, Verdict
from bridge.migrate.rabbitmq.facts import Value

_OWN_LIMIT: Final = (20, (4, 0, 0))
"""Of a quorum queue that was declared without one, and since when."""

_SAID: Final[Mapping[str, tuple[Verdict, str]]] = {
    "x-expires": (
        Verdict.FAILS,
        "Make one that stays: it goes when nobody has used it for so long, and a bridge leaves a group that is idle.",
    ),
    "x-message-ttl": (
        Verdict.DIFFERS,
        "Know that it counts in the queue only: a message that a bridge has fetched does not expire any more.",
    ),
    "x-max-priority": (
        Verdict.WORKS,
        "Nothing to do: a native priority n is the bridge's n + 1, in both directions.",
    ),
    "x-dead-letter-exchange": (
        Verdict.DIFFERS,
        "Have whoever reads its dead letters read <destination>.dlq too: the bridge buries there what fails.",
    ),
}


def judge(arguments: Mapping[str, Value], max_deliveries: int, version: tuple[int, ...]) -> Iterator[Finding]:
    """Yield a finding for each argument that means something."""
    for name, (verdict, said) in _SAID.items():
        if (value := arguments.get(name)) is not None:
            yield Finding(name, str(value), verdict, said)
    if arguments.get("x-dead-letter-exchange") is None:
        said = "Nothing to do: the bridge buries what consumers fail on in <destination>.dlq."
        yield Finding("dead letters", "no x-dead-letter-exchange", Verdict.WORKS, said)
    yield from _length(arguments)
    if arguments.get("x-queue-type") == "quorum":
        yield _limit(arguments, max_deliveries, version)


def _length(arguments: Mapping[str, Value]) -> Iterator[Finding]:
    bounds = [f"{name} {arguments[name]}" for name in ("x-max-length", "x-max-length-bytes") if arguments.get(name)]
    if not bounds:
        return
    overflow = arguments.get("x-overflow") or "drop-head"
    seen = f"{', '.join(bounds)}, x-overflow {overflow}"
    if overflow == "drop-head":
        said = (
            "Know that its oldest messages go when it is full, though they were answered 200: reject-publish says no."
        )
    else:
        said = (
            "Let producers try again: when it is full a produce is 503, not stored, or 504 where others have taken it."
        )
    yield Finding("length", seen, Verdict.DIFFERS, said)


def _limit(arguments: Mapping[str, Value], max_deliveries: int, version: tuple[int, ...]) -> Finding:
    own, since = _OWN_LIMIT
    if "x-delivery-limit" not in arguments:
        said = "rabbitmqctl list_queues name arguments shows it: it should be above delivery.max_deliveries."
        return Finding("x-delivery-limit", "not told", Verdict.UNKNOWN, said)
    given = arguments["x-delivery-limit"]
    limit = given if isinstance(given, int) else own if version >= since else None
    seen = f"{'none' if limit is None else limit}, delivery.max_deliveries {max_deliveries}"
    if limit is not None and 0 <= limit <= max_deliveries:
        said = "Raise it above delivery.max_deliveries: else RabbitMQ drops or dead-letters before the bridge does."
        return Finding("x-delivery-limit", seen, Verdict.DIFFERS, said)
    return Finding("x-delivery-limit", seen, Verdict.WORKS, "Nothing to do: the bridge buries first.")
