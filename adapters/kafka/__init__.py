"""The Kafka backend: the same meaning on a broker that people already run."""

from adapters.base import Adapter
from adapters.kafka.url import parse


def connect(url: str) -> Adapter:
    """Build the adapter that a `kafka://` URL describes. Raises `ValueError` with what is allowed."""
    options = parse(url)
    from adapters.kafka.adapter import KafkaAdapter  # noqa: PLC0415 - it brings the client library, an extra

    return KafkaAdapter(options)
