"""What the way in which a queue was declared means for it once a bridge consumes it. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

from bridge.engine.names import check_name
from bridge.errors import DestinationInvalid
from bridge.migrate.finding import Finding, Verdict
from bridge.migrate.rabbitmq import arguments
from bridge.migrate.rabbitmq.facts import Entry, Queue, Traits, Value

_ASK: Final = (
    "rabbitmqctl list_queues name type durable auto_delete arguments shows it, or give the user configure on it"
)


def judge(queue: Queue, entry: Entry | None, max_deliveries: int, version: tuple[int, ...]) -> Iterator[Finding]:
    """Yield a finding for each thing. `max_deliveries`: after how many the bridge buries a message."""
    yield _named(queue, entry)
    if queue.exclusive:
        said = (
            "Declare a queue that is not exclusive and bind it alike: this one is its connection's, and goes with it."
        )
        yield Finding("exclusive", "of another connection", Verdict.FAILS, said)
        return
    if queue.traits is None:
        yield Finding("declaration", "the user may not ask", Verdict.UNKNOWN, f"{_ASK}.")
    else:
        yield from _declared(queue.traits)
        yield from arguments.judge(queue.traits.arguments, max_deliveries, version)
    yield _consumers(queue, {} if queue.traits is None else queue.traits.arguments)
    said = "Nothing to do: whoever comes first gets them, native or bridged, each once."
    yield Finding("messages", f"{queue.messages} ready", Verdict.WORKS, said)
    yield from _hidden(queue.name)


def _named(queue: Queue, entry: Entry | None) -> Finding:
    if entry is None:
        said = (
            f"Name it in the file of destinations=, such as orders: {{queue: {queue.name}}}: without that the bridge"
            " makes an exchange and queues of its own."
        )
        return Finding("destination", "no entry names this queue", Verdict.DIFFERS, said)
    try:
        check_name(entry.destination, "name")
    except DestinationInvalid as error:
        return Finding("destination", entry.destination, Verdict.FAILS, f"Give the entry another name: {error.detail}")
    said = (
        "Nothing to do: every group, every bridge and every native consumer share its messages; it has one partition."
    )
    return Finding("destination", entry.destination, Verdict.WORKS, said)


def _declared(traits: Traits) -> Iterator[Finding]:
    if traits.auto_delete:
        said = "Make one that stays: it goes with its last consumer, and a bridge leaves a group that is idle."
        yield Finding("auto-delete", "true", Verdict.FAILS, said)
    if not traits.durable:
        said = (
            "Make a durable one, or know that it and its messages go with the broker: a 200 of the bridge says stored."
        )
        yield Finding("durable", "false", Verdict.FAILS, said)
    else:
        yield Finding("durable", "true", Verdict.WORKS, "Nothing to do: the bridge's messages are persistent.")
    kind = traits.arguments.get("x-queue-type") or "classic"
    if kind not in {"classic", "quorum"}:
        said = "A bridge cannot take from it: have its producers write to a destination of the bridge's own."
        yield Finding("type", str(kind), Verdict.FAILS, said)
    elif kind == "quorum":
        yield Finding("type", kind, Verdict.WORKS, "Nothing to do.")
    else:
        said = "Nothing to do: it is stored on one node; a 200 means that this one has it."
        yield Finding("type", kind, Verdict.WORKS, said)


def _consumers(queue: Queue, declared: Mapping[str, Value]) -> Finding:
    seen = f"{queue.consumers} now"
    if declared.get("x-single-active-consumer") is True:
        said = (
            "Stop its native consumers, then start the bridge's: only one consumer gets messages, others wait for it."
        )
        return Finding("consumers", f"{seen}, x-single-active-consumer", Verdict.DIFFERS, said)
    said = "Move them one by one; as long as there are several, messages have no order."
    return Finding("consumers", seen, Verdict.WORKS, said)


def _hidden(name: str) -> Iterator[Finding]:
    """Yield what AMQP 0-9-1 does not tell anybody."""
    said = {
        "bindings": f"rabbitmqctl list_bindings or the management plugin shows which exchange and key lead to {name}.",
        "policies": "rabbitmqctl list_policies shows them: what they say of lengths, TTL and dead letters counts too.",
        "headers": "Look at copies in a queue of your own, bound alike: to look at a message here is to take it.",
    }
    yield from (Finding(subject, "AMQP does not tell", Verdict.UNKNOWN, advice) for subject, advice in said.items())
