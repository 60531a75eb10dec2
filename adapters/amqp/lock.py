"""A lock among all programs of a broker: an exclusive queue, which is deleted with its connection."""

import asyncio

from pika.exceptions import ChannelClosedByBroker

from adapters.amqp.channel import Channel
from adapters.amqp.errors import RESOURCE_LOCKED
from adapters.amqp.link import Link
from bridge.errors import BridgeError


async def lock(link: Link, queue: str) -> Channel | None:
    """Return a channel that holds the lock until it is closed; None: another connection holds it.

    The queue is deleted with its consumer, and that with the channel. Raises `Refused` or `BackendUnavailable`.
    """
    channel = await link.channel()
    try:
        await channel.ask(queue, "queue_declare", queue=queue, exclusive=True, auto_delete=True)
        await channel.consume(queue, lambda *_: None, auto_ack=True)  # no program publishes to a lock
    except BridgeError:
        reason = channel.ended.result() if channel.ended.done() else None
        if isinstance(reason, ChannelClosedByBroker) and reason.reply_code == RESOURCE_LOCKED:
            return None
        await channel.close()
        raise
    except asyncio.CancelledError:
        await channel.close()
        raise
    return channel
