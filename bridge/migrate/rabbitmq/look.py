"""Looks at a queue, and at the exchange that the settings name for it. No message is taken, not even for a moment."""

from collections.abc import Mapping

from pika.exceptions import ChannelClosedByBroker

from adapters.rabbitmq.link import Link
from adapters.rabbitmq.options import Existing
from adapters.rabbitmq.outcomes import RESOURCE_LOCKED
from adapters.rabbitmq.url import parse
from bridge.errors import BridgeError, DestinationUnknown
from bridge.migrate.finding import Report
from bridge.migrate.rabbitmq import exchange, queue
from bridge.migrate.rabbitmq.facts import Entry, Exchange, Queue
from bridge.migrate.rabbitmq.interview import ask_exchange, ask_queue
from bridge.settings import Settings


async def examine_queue(settings: Settings, name: str) -> Report:
    """Return what was found. `name` is a queue, or a destination that `destinations=` has an entry for.

    Raises `ValueError` for a wrong URL, `BridgeError` for what the broker refuses.
    """
    options = parse(settings.backend)
    entry = _entry(options.destinations, name)
    link = Link(options, "looking")
    await link.start()
    try:
        seen = await _queue(link, name if entry is None else entry.existing.queue or name)
        named = None if entry is None else entry.existing.exchange
        front = None if named is None else await _exchange(link, named)
        version = link.version
    finally:
        await link.close()
    findings = [
        *queue.judge(seen, entry, settings.delivery.max_deliveries, version),
        *exchange.judge(front, entry),
    ]
    return Report("queue", seen.name, findings)


def _entry(destinations: Mapping[str, Existing], name: str) -> Entry | None:
    """Return the entry of that destination, or the one that names the queue."""
    found = destinations.get(name)
    if found is not None and found.queue is not None:
        return Entry(name, found)
    return next((Entry(other, existing) for other, existing in destinations.items() if existing.queue == name), None)


async def _queue(link: Link, name: str) -> Queue:
    """Raises `DestinationUnknown`, `Refused` or `BackendUnavailable`."""
    channel = await link.channel()
    try:
        there = await channel.ask(name, "queue_declare", queue=name, passive=True)
    except DestinationUnknown:
        raise DestinationUnknown(f"{name}: there is no such queue.") from None
    except BridgeError as error:
        reason = error.__cause__
        if isinstance(reason, ChannelClosedByBroker) and reason.reply_code == RESOURCE_LOCKED:
            return Queue(name, exclusive=True, messages=0, consumers=0, traits=None)
        raise
    finally:
        await channel.close()
    traits = await ask_queue(link, name)
    return Queue(name, exclusive=False, messages=there.message_count, consumers=there.consumer_count, traits=traits)


async def _exchange(link: Link, name: str) -> Exchange:
    """Raises `Refused` or `BackendUnavailable`."""
    channel = await link.channel()
    try:
        await channel.ask(name, "exchange_declare", exchange=name, passive=True)
    except DestinationUnknown:
        return Exchange(name, there=False, traits=None)
    finally:
        await channel.close()
    return Exchange(name, there=True, traits=await ask_exchange(link, name))
