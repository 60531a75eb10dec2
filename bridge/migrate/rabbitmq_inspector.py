"""Inspects a queue, and the exchange that the settings name for it. No message is taken, not even briefly."""

from collections.abc import Mapping

from pika.exceptions import ChannelClosedByBroker

from adapters.amqp.errors import RESOURCE_LOCKED
from adapters.amqp.link import Link
from adapters.rabbitmq.options import Existing
from adapters.rabbitmq.url import parse
from bridge.errors import BridgeError, DestinationUnknown
from bridge.migrate.rabbitmq_declaration_probe import probe_exchange, probe_queue
from bridge.migrate.rabbitmq_queue_checks import (
    DestinationEntry,
    ExchangeFacts,
    QueueFacts,
    check_exchange,
    check_queue,
)
from bridge.migrate.report import Report
from bridge.settings import Settings


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
