"""The RabbitMQ backend, without plugins."""

from adapters.base import Adapter
from adapters.rabbitmq.options import parse
from bridge.errors import needs_extra


def connect(url: str) -> Adapter:
    """Build the adapter that an `amqp://` or `amqps://` URL describes.

    Raises `ValueError` with what is allowed, or `CannotStart` if the client library, an extra, is not installed.
    """
    options = parse(url)
    try:
        from adapters.rabbitmq.adapter import RabbitMQAdapter  # noqa: PLC0415 - it brings the client library
    except ModuleNotFoundError as missing:
        raise needs_extra("RabbitMQ", missing.name, "rabbitmq") from missing
    return RabbitMQAdapter(options)
