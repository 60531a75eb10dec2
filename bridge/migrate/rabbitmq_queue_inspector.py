"""Inspects a queue, and the exchange that the settings name for it. No message is taken, not even briefly.

How they were declared is found out over plain AMQP; the user needs the permission `configure`. AMQP 0-9-1 has no
request for that. But RabbitMQ refuses a declaration that differs from an existing one, and names the first difference.
The probe declares again and again, copies each difference, and so learns the real declaration. Each request has an
impossible argument, such as a time to live of -1. So it creates nothing, even if the queue has just been deleted, and
the last difference that RabbitMQ names is that argument, with its real value.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from pika.exceptions import ChannelClosedByBroker

from adapters.amqp.errors import ACCESS_REFUSED, RESOURCE_LOCKED
from adapters.amqp.link import Link
from adapters.rabbitmq.options import Existing, parse
from bridge.errors import BridgeError, DestinationUnknown
from bridge.migrate.rabbitmq_queue_checks import (
    ArgumentValue,
    Declaration,
    DestinationEntry,
    ExchangeFacts,
    QueueFacts,
    check_exchange,
    check_queue,
)
from bridge.migrate.report import Report
from bridge.settings import Settings

IMPOSSIBLE: Final[Mapping[str, ArgumentValue]] = {
    "x-expires": 0,
    "x-message-ttl": -1,
    "x-dead-letter-exchange": 5,
    "x-dead-letter-routing-key": 5,
    "x-max-length": -1,
    "x-max-length-bytes": -1,
    "x-max-priority": -1,
    "x-overflow": "nonsense",
    "x-single-active-consumer": 5,
    "x-queue-type": "nonsense",
}
"""Arguments to probe, each with a value that RabbitMQ accepts for no queue."""
_DELIVERY_LIMIT: Final = "x-delivery-limit"
"""Needs a second, impossible argument: RabbitMQ 3.10.8 creates a quorum queue with any value of this one."""
_BESIDE_DELIVERY_LIMIT: Final[Mapping[str, ArgumentValue]] = {"x-max-priority": -1}
"""RabbitMQ compares it after the delivery limit."""
_ALTERNATE_EXCHANGE: Final = "alternate-exchange"
_ATTEMPTS: Final = 30
_DIFFERENCE: Final = re.compile(
    r"inequivalent arg '(?P<name>[^']+)' for (?:queue|exchange) .*: received .* but current is"
    r" (?:none|the value '(?P<typed>.*)' of type '(?P<type>\w+)'|'(?P<plain>.*)')$",
    re.DOTALL,
)
_NUMBER: Final = re.compile(r"-?\d+")
_TEXT_ARGUMENTS: Final = frozenset(
    {
        *("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-overflow"),
        *("x-queue-type", "x-queue-mode", "alternate-exchange", "type"),
    }
)
"""Arguments whose values are text, even if they look like numbers and RabbitMQ does not name their type."""


class Difference(NamedTuple):
    """One difference between a declaration and the existing queue or exchange."""

    name: str
    """An argument, or durable, auto_delete, internal, type."""
    current: ArgumentValue


async def probe_queue(link: Link, queue: str) -> Declaration | None:
    """Return how a queue was declared; None if the user may not ask. Raises `BackendUnavailable`."""
    probe = _DeclarationProbe(link, queue, {"durable": True, "auto_delete": False})
    try:
        for name, value in IMPOSSIBLE.items():
            await probe.learn(name, {name: value})
        await probe.learn(_DELIVERY_LIMIT, {_DELIVERY_LIMIT: -5, **_BESIDE_DELIVERY_LIMIT})
    except PermissionError:
        return None
    return probe.declaration()


async def probe_exchange(link: Link, exchange: str) -> Declaration | None:
    """Return how an exchange was declared; None if the user may not ask. Raises `BackendUnavailable`."""
    guess: dict[str, ArgumentValue] = {"type": "topic", "durable": True, "auto_delete": False, "internal": False}
    probe = _DeclarationProbe(link, exchange, guess)
    try:
        await probe.learn(_ALTERNATE_EXCHANGE, {_ALTERNATE_EXCHANGE: 5})
    except PermissionError:
        return None
    return probe.declaration()


class _DeclarationProbe:
    """The facts known about one queue or exchange; `guess` is the first try, and its `type` makes it an exchange."""

    def __init__(self, link: Link, name: str, guess: Mapping[str, ArgumentValue]) -> None:
        self._link = link
        self._name = name
        self._properties = dict(guess)
        self._arguments: dict[str, ArgumentValue] = {}

    def declaration(self) -> Declaration:
        """Return what was learned."""
        kind = self._properties.get("type")
        return Declaration(
            durable=bool(self._properties["durable"]),
            auto_delete=bool(self._properties["auto_delete"]),
            internal=bool(self._properties.get("internal")),
            kind=None if kind is None else str(kind),
            arguments=self._arguments,
        )

    async def learn(self, argument: str, impossible: Mapping[str, ArgumentValue]) -> None:
        """Find out one argument, and each difference that RabbitMQ names before it; it may stay unknown.

        Raises `PermissionError`.
        """
        for _ in range(_ATTEMPTS):
            found = await self._declare(impossible)
            if found is None or (found.name in impossible and found.name != argument):
                return
            (self._properties if found.name in self._properties else self._arguments)[found.name] = found.current
            if found.name == argument:
                return

    async def _declare(self, impossible: Mapping[str, ArgumentValue]) -> Difference | None:
        """Declare, and return the difference that RabbitMQ names first."""
        properties: dict[str, object] = dict(self._properties)
        method, name_parameter = "queue_declare", "queue"
        if "type" in properties:
            method, name_parameter = "exchange_declare", "exchange"
            properties["exchange_type"] = properties.pop("type")
        arguments = {name: value for name, value in self._arguments.items() if value is not None} | dict(impossible)
        channel = await self._link.channel()
        try:
            await channel.ask(self._name, method, **{name_parameter: self._name}, **properties, arguments=arguments)
        except BridgeError as error:
            reason = error.__cause__
            if not isinstance(reason, ChannelClosedByBroker):
                raise
            if reason.reply_code == ACCESS_REFUSED:
                raise PermissionError from None
            return parse_difference(reason.reply_text)
        finally:
            await channel.close()
        return None


def parse_difference(text: str) -> Difference | None:
    """Read RabbitMQ's refusal; None if it is another sentence or was cut off (a short string has 255 bytes)."""
    found = _DIFFERENCE.search(text)
    if found is None:
        return None
    value = found["typed"] if found["plain"] is None else found["plain"]
    is_text = found["type"] == "longstr" or found["name"] in _TEXT_ARGUMENTS
    return Difference(found["name"], value if is_text else _parse_value(value))


def _parse_value(text: str | None) -> ArgumentValue:
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if text is not None and _NUMBER.fullmatch(text) else text


async def examine_queue(settings: Settings, name: str) -> Report:
    """Inspect `name`: a queue, or a destination that has an entry in `destinations=`.

    Raises `ValueError` if the backend's URL is wrong, `BridgeError` if the broker refuses.
    """
    options = parse(settings.backend)
    entry = _find_entry(options.destinations, name)
    link = Link(options, "check")
    await link.start()
    try:
        queue = await _inspect_queue(link, name if entry is None else entry.existing.queue or name)
        exchange_name = None if entry is None else entry.existing.exchange
        exchange = None if exchange_name is None else await _inspect_exchange(link, exchange_name)
        version = link.version
    finally:
        await link.close()
    findings = [
        *check_queue(queue, entry, settings.delivery.max_deliveries, version),
        *check_exchange(exchange, entry),
    ]
    return Report("queue", queue.name, findings)


def _find_entry(destinations: Mapping[str, Existing], name: str) -> DestinationEntry | None:
    """Return the entry of that destination, or the one that names the queue."""
    existing = destinations.get(name)
    if existing is not None and existing.queue is not None:
        return DestinationEntry(name, existing)
    matches = (DestinationEntry(other, each) for other, each in destinations.items() if each.queue == name)
    return next(matches, None)


async def _inspect_queue(link: Link, name: str) -> QueueFacts:
    """Raises `DestinationUnknown`, `Refused` or `BackendUnavailable`."""
    channel = await link.channel()
    try:
        declared = await channel.ask(name, "queue_declare", queue=name, passive=True)
    except DestinationUnknown:
        raise DestinationUnknown(f"{name}: there is no such queue.") from None
    except BridgeError as error:
        reason = error.__cause__
        if isinstance(reason, ChannelClosedByBroker) and reason.reply_code == RESOURCE_LOCKED:
            return QueueFacts(name, exclusive=True, messages=0, consumers=0, declaration=None)
        raise
    finally:
        await channel.close()
    declaration = await probe_queue(link, name)
    messages, consumers = declared.message_count, declared.consumer_count
    return QueueFacts(name, exclusive=False, messages=messages, consumers=consumers, declaration=declaration)


async def _inspect_exchange(link: Link, name: str) -> ExchangeFacts:
    """Raises `Refused` or `BackendUnavailable`."""
    channel = await link.channel()
    try:
        await channel.ask(name, "exchange_declare", exchange=name, passive=True)
    except DestinationUnknown:
        return ExchangeFacts(name, exists=False, declaration=None)
    finally:
        await channel.close()
    return ExchangeFacts(name, exists=True, declaration=await probe_exchange(link, name))
