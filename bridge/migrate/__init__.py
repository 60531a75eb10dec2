"""Looks at a topic or a queue that exists, and says what will work through a bridge before anything is switched.

A room of its own, not a part of the command line: who looks (`look`), what was seen (`facts`) and what it means
(`judge`, pure) are three things for each backend, and only the last sentence is printed by a command. It uses the
adapters' own options and connections, and starts no adapter: that would declare topics and queues.
"""

from bridge.errors import CannotStart
from bridge.migrate.finding import Report
from bridge.settings import Settings

__all__ = ["Report", "examine"]


async def examine(settings: Settings, name: str) -> Report:
    """Look at it; nothing is changed, declared or consumed.

    Raises `CannotStart` where there is nothing to look at, `BridgeError` for what the broker refuses.
    """
    scheme = settings.backend.partition(":")[0]
    try:
        if scheme == "kafka":
            from bridge.migrate.kafka.look import examine_topic  # noqa: PLC0415 - it brings the client library, an extra

            return await examine_topic(settings, name)
        if scheme in {"amqp", "amqps"}:
            from bridge.migrate.rabbitmq.look import examine_queue  # noqa: PLC0415 - the same

            return await examine_queue(settings, name)
    except ValueError as error:
        raise CannotStart(f"backend: {error}") from None
    raise CannotStart(f"--migrate looks at topics of kafka:// and queues of amqp://; {scheme}:// has neither.")
