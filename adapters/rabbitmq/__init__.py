"""The RabbitMQ backend, without plugins."""

from adapters.base import Adapter
from adapters.rabbitmq.options import parse


def connect(url: str) -> Adapter:
    """Build the adapter that an `amqp://` or `amqps://` URL describes. Raises `ValueError` with what is allowed."""
    options = parse(url)
    from adapters.rabbitmq.adapter import RabbitMQAdapter  # noqa: PLC0415 - it brings the client library, an extra

    return RabbitMQAdapter(options)
