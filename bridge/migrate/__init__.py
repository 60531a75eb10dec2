"""`check --migrate`: inspects an existing topic or queue and reports what will work through a bridge.

For each backend, an inspector asks the broker, and pure checks turn its answers into findings. The inspectors use the
adapters' options and connections, but start no adapter: an adapter would declare topics and queues.
"""

from bridge.errors import CannotStart, needs_extra
from bridge.migrate.report import Report
from bridge.settings import Settings

__all__ = ["Report", "examine"]


async def examine(settings: Settings, name: str) -> Report:
    """Inspect a topic or a queue; nothing is changed, declared or consumed.

    Raises `CannotStart` if the backend has neither, its URL is wrong or its client library, an extra, is not installed;
    `BridgeError` if the broker refuses.
    """
    scheme = settings.backend.partition(":")[0]
    try:
        if scheme == "kafka":
            from bridge.migrate.kafka_inspector import examine_topic  # noqa: PLC0415 - imports the client, an extra

            return await examine_topic(settings, name)
        if scheme in {"amqp", "amqps"}:
            from bridge.migrate.rabbitmq_queue_inspector import examine_queue  # noqa: PLC0415 - the same

            return await examine_queue(settings, name)
    except ValueError as error:
        raise CannotStart(f"backend: {error}") from None
    except ModuleNotFoundError as missing:
        raise needs_extra("--migrate", missing.name, "kafka" if scheme == "kafka" else "rabbitmq") from missing
    raise CannotStart(f"--migrate inspects topics of kafka:// and queues of amqp://; {scheme}:// has neither.")
