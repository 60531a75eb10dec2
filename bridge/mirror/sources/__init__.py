"""Where rows come from: one source for each backend."""
# ruff: noqa: PLC0415 - each source brings the client library of its backend, an extra

from bridge.errors import CannotStart
from bridge.mirror.sources.range_source import OnDataLoss, Options, Source

__all__ = ["OnDataLoss", "Options", "Source", "open_source"]


def open_source(options: Options) -> Source:
    """Build the source for the backend that the options name; nothing is connected yet. Raises `CannotStart`."""
    scheme = options.backend.partition(":")[0]
    try:
        match scheme:
            case "memory":
                from bridge.mirror.sources.memory import MemorySource

                return MemorySource(options)
            case "kafka":
                from bridge.mirror.sources.kafka.source import KafkaSource

                return KafkaSource(options)
            case "amqp" | "amqps":
                from bridge.mirror.sources.rabbitmq.source import RabbitMQSource

                return RabbitMQSource(options)
    except ValueError as error:
        raise CannotStart(f"backend: {error}") from None
    except ModuleNotFoundError as error:
        extra = "kafka" if scheme == "kafka" else "rabbitmq"
        raise CannotStart(
            f"backend: {scheme}:// needs {error.name}: pip install 'openmessaging-bridge[mirror,{extra}]'."
        ) from None
    raise CannotStart(f"backend: {scheme}:// cannot be mirrored; memory, kafka, amqp and amqps can.")
