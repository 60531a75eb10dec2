"""Checks how a queue and its exchange were declared: do they suit a bridge that consumes and publishes? Pure."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from adapters.rabbitmq.options import Existing
from bridge.engine.destination_names import check_name
from bridge.errors import DestinationInvalid
from bridge.migrate.report import Finding, Verdict

ArgumentValue = str | int | bool | None
"""None: the queue was declared without the argument."""

_DEFAULT_DELIVERY_LIMIT: Final = (20, (4, 0, 0))
"""Of a quorum queue that was declared without one, and the version that introduced it."""
_COUNTED: Final = (
    "RabbitMQ counts a message that a consumer received and did not settle before the bridge closed the group or lost"
    " the connection; it counts no other."
)
"""How a bridge uses up a delivery limit."""
_ARGUMENTS: Final[Mapping[str, tuple[Verdict, str]]] = {
    "x-expires": (
        Verdict.FAILS,
        "Declare a queue without it: the bridge consumes only while a consumer waits, and an unused queue is deleted.",
    ),
    "x-message-ttl": (
        Verdict.DIFFERS,
        "Expect that it applies in the queue only: a message that a bridge has fetched does not expire.",
    ),
    "x-max-priority": (
        Verdict.WORKS,
        "Nothing to do: native priority n is the bridge's n + 1, in both directions.",
    ),
    "x-dead-letter-exchange": (
        Verdict.DIFFERS,
        "Let the consumers of its dead letters also read <destination>.dlq: the bridge puts failed messages there.",
    ),
}


class Declaration(NamedTuple):
    """How a queue or an exchange was declared."""

    durable: bool
    auto_delete: bool
    internal: bool
    """Of an exchange: clients cannot publish to it."""
    kind: str | None
    """Type of an exchange; None for a queue."""
    arguments: Mapping[str, ArgumentValue]
    """Those that RabbitMQ revealed."""


class QueueFacts(NamedTuple):
    """RabbitMQ's data about a queue."""

    name: str
    exclusive: bool
    """Whether it belongs to another connection; then RabbitMQ says nothing else."""
    messages: int
    """Ready messages, which no consumer has."""
    consumers: int
    declaration: Declaration | None
    """None: the user may not ask."""


class DestinationEntry(NamedTuple):
    """One entry of the file of `destinations=`."""

    destination: str
    existing: Existing


def check_queue(
    queue: QueueFacts, entry: DestinationEntry | None, max_deliveries: int, version: tuple[int, ...]
) -> Iterator[Finding]:
    """Yield findings. `max_deliveries`: deliveries after which the bridge makes a message a dead letter."""
    yield _check_entry(queue, entry)
    if queue.exclusive:
        advice = "Declare a queue that is not exclusive, with the same bindings: this one ends with its connection."
        yield Finding("exclusive", "of another connection", Verdict.FAILS, advice)
        return
    declaration = queue.declaration
    if declaration is None:
        advice = (
            "Give the user configure on it, or run rabbitmqctl list_queues name type durable auto_delete arguments."
        )
        yield Finding("declaration", "the user may not ask", Verdict.UNKNOWN, advice)
    else:
        yield from _check_declaration(declaration)
        yield from _check_arguments(declaration.arguments, max_deliveries, version)
    yield _check_consumers(queue, {} if declaration is None else declaration.arguments)
    advice = "Nothing to do: each message goes to one consumer, native or bridged."
    yield Finding("messages", f"{queue.messages} ready", Verdict.WORKS, advice)
    yield from _not_visible(queue.name)


def _check_entry(queue: QueueFacts, entry: DestinationEntry | None) -> Finding:
    if entry is None:
        advice = (
            f"Name it in the file of destinations=, such as orders: {{queue: {queue.name}}}: otherwise the bridge"
            " declares an exchange and queues of that name itself."
        )
        return Finding("destination", "no entry names this queue", Verdict.DIFFERS, advice)
    try:
        check_name(entry.destination, "name")
    except DestinationInvalid as error:
        return Finding(
            "destination", entry.destination, Verdict.FAILS, f"Rename the entry: {error.detail.rstrip('.')}."
        )
    advice = "Nothing to do: all groups, bridges and native consumers share its messages; it has one partition."
    return Finding("destination", entry.destination, Verdict.WORKS, advice)


def _check_declaration(declaration: Declaration) -> Iterator[Finding]:
    if declaration.auto_delete:
        advice = "Declare a queue without it: RabbitMQ deletes this one as soon as no consumer waits for a message."
        yield Finding("auto-delete", "true", Verdict.FAILS, advice)
    if not declaration.durable:
        advice = (
            "Declare a durable queue: this one and its messages are lost when the broker restarts, although the bridge"
            " answered 200."
        )
        yield Finding("durable", "false", Verdict.FAILS, advice)
    else:
        yield Finding("durable", "true", Verdict.WORKS, "Nothing to do: the bridge's messages are persistent.")
    kind = declaration.arguments.get("x-queue-type") or "classic"
    if kind not in {"classic", "quorum"}:
        advice = "Let its producers write to a destination of the bridge: a bridge cannot consume this type."
        yield Finding("type", str(kind), Verdict.FAILS, advice)
    elif kind == "quorum":
        yield Finding("type", kind, Verdict.WORKS, "Nothing to do.")
    else:
        advice = "Nothing to do: it is stored on one node, and 200 means that this node has the message."
        yield Finding("type", kind, Verdict.WORKS, advice)


def _check_consumers(queue: QueueFacts, arguments: Mapping[str, ArgumentValue]) -> Finding:
    seen = f"{queue.consumers} now"
    if arguments.get("x-single-active-consumer") is True:
        advice = "Stop its native consumers, then start the bridge's: only one consumer at a time gets messages."
        return Finding("consumers", f"{seen}, x-single-active-consumer", Verdict.DIFFERS, advice)
    advice = "Move them one by one; while there are several, messages have no order."
    return Finding("consumers", seen, Verdict.WORKS, advice)


def _check_arguments(
    arguments: Mapping[str, ArgumentValue], max_deliveries: int, version: tuple[int, ...]
) -> Iterator[Finding]:
    for name, (verdict, advice) in _ARGUMENTS.items():
        if (value := arguments.get(name)) is not None:
            yield Finding(name, str(value), verdict, advice)
    if arguments.get("x-dead-letter-exchange") is None:
        advice = "Nothing to do: the bridge puts failed messages into <destination>.dlq."
        yield Finding("dead letters", "no x-dead-letter-exchange", Verdict.WORKS, advice)
    yield from _check_length(arguments)
    if arguments.get("x-queue-type") == "quorum":
        yield _check_delivery_limit(arguments, max_deliveries, version)


def _check_length(arguments: Mapping[str, ArgumentValue]) -> Iterator[Finding]:
    limits = [f"{name} {arguments[name]}" for name in ("x-max-length", "x-max-length-bytes") if arguments.get(name)]
    if not limits:
        return
    overflow = arguments.get("x-overflow") or "drop-head"
    seen = f"{', '.join(limits)}, x-overflow {overflow}"
    if overflow == "drop-head":
        advice = "Use x-overflow reject-publish: a full queue drops its oldest messages, which were answered 200."
    else:
        advice = "Let producers retry: while it is full, a produce is 503 (not stored), or 504 if other queues took it."
    yield Finding("length", seen, Verdict.DIFFERS, advice)


def _check_delivery_limit(
    arguments: Mapping[str, ArgumentValue], max_deliveries: int, version: tuple[int, ...]
) -> Finding:
    default, since = _DEFAULT_DELIVERY_LIMIT
    if "x-delivery-limit" not in arguments:
        advice = f"Run rabbitmqctl list_queues name arguments: it should be above delivery.max_deliveries. {_COUNTED}"
        return Finding("x-delivery-limit", "not visible", Verdict.UNKNOWN, advice)
    declared = arguments["x-delivery-limit"]
    limit = declared if isinstance(declared, int) else default if version >= since else None
    seen = f"{'none' if limit is None else limit}, delivery.max_deliveries {max_deliveries}"
    if limit is not None and 0 <= limit <= max_deliveries:
        advice = (
            "Raise it above delivery.max_deliveries, or give the queue a dead-letter exchange: beyond it RabbitMQ drops"
            f" or dead-letters. {_COUNTED}"
        )
        return Finding("x-delivery-limit", seen, Verdict.DIFFERS, advice)
    return Finding("x-delivery-limit", seen, Verdict.WORKS, f"Nothing to do. {_COUNTED}")


def _not_visible(name: str) -> Iterator[Finding]:
    """Yield what AMQP 0-9-1 does not show."""
    advice = {
        "bindings": f"Run rabbitmqctl list_bindings: it shows which exchange and key lead to {name}.",
        "policies": (
            "Run rabbitmqctl list_policies: their delivery limits, lengths, TTLs and dead-letter exchanges apply, too."
        ),
        "headers": "Bind a second queue and inspect its messages: consuming from this queue would remove them.",
    }
    yield from (Finding(subject, "AMQP does not show", Verdict.UNKNOWN, text) for subject, text in advice.items())


_STANDARD_TYPES: Final = frozenset({"direct", "topic", "fanout", "headers"})


class ExchangeFacts(NamedTuple):
    """RabbitMQ's data about the exchange that the settings name."""

    name: str
    exists: bool
    declaration: Declaration | None
    """None: the user may not ask, or it does not exist."""


def check_exchange(exchange: ExchangeFacts | None, entry: DestinationEntry | None) -> Iterator[Finding]:
    """Yield findings about the exchange of the entry."""
    if entry is None:
        return
    if exchange is None:
        advice = "Name the exchange if it has other queues: otherwise moved producers publish directly to this queue."
        yield Finding("exchange", "the entry names none", Verdict.DIFFERS, advice)
        return
    if not exchange.exists:
        advice = "Correct the entry or declare the exchange: otherwise the bridge answers 404 or 503 to each produce."
        yield Finding("exchange", f"{exchange.name} does not exist", Verdict.FAILS, advice)
        return
    if exchange.declaration is None:
        advice = "Give the user configure on it, or run rabbitmqctl list_exchanges name type durable internal."
        yield Finding("exchange", f"{exchange.name}, the user may not ask", Verdict.UNKNOWN, advice)
        return
    yield _check_exchange_declaration(exchange.name, exchange.declaration, entry.existing.routing_key)
    advice = (
        "Give every destination on this exchange log: false if a native producer sends headers of the type decimal:"
        " RabbitMQ cannot store them in a log's stream, and closes the producer's connection (541 INTERNAL_ERROR)."
    )
    yield Finding("decimal headers", "AMQP does not show", Verdict.UNKNOWN, advice)


def _check_exchange_declaration(name: str, declaration: Declaration, routing_key: str | None) -> Finding:
    flags = (
        ("not durable", not declaration.durable),
        ("auto-delete", declaration.auto_delete),
        ("internal", declaration.internal),
    )
    seen = ", ".join([name, str(declaration.kind), *(flag for flag, is_set in flags if is_set)])
    failing = (
        (declaration.internal, "Name the exchange that producers publish to: clients cannot publish to this one."),
        (declaration.auto_delete, "Declare an exchange without auto-delete: this one ends with its last binding."),
        (
            not declaration.durable,
            "Declare a durable exchange: this one ends when the broker restarts, and the bridge does not recreate it.",
        ),
        (
            declaration.kind == "headers",
            "Remove the exchange from the entry: its bindings match headers, and a bridge names them oms_p_….",
        ),
    )
    differing = (
        (
            declaration.kind not in _STANDARD_TYPES,
            "Check how its plugin routes a message with headers oms_h_… and one routing key.",
        ),
        (
            routing_key is None and declaration.kind != "fanout",
            "Give the entry the routing_key that producers use.",
        ),
    )
    for cases, verdict in ((failing, Verdict.FAILS), (differing, Verdict.DIFFERS)):
        if advice := next((advice for applies, advice in cases if applies), None):
            return Finding("exchange", seen, verdict, advice)
    advice = "Nothing to do: the bridge publishes with the routing key of the entry, whatever native producers use."
    return Finding("exchange", seen, Verdict.WORKS, advice)
