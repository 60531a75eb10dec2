"""The Kafka backend: the same meaning on a broker that people already run."""

from adapters.base import Adapter
from adapters.kafka.options import parse
from bridge.errors import CannotStart


def connect(url: str) -> Adapter:
    """Build the adapter that a `kafka://` URL describes.

    Raises `ValueError` with what is allowed, or `CannotStart` if the client library, an extra, is not installed.
    """
    options = parse(url)
    try:
        from adapters.kafka.adapter import KafkaAdapter  # noqa: PLC0415 - it brings the client library
    except ModuleNotFoundError as missing:
        raise CannotStart(f"Kafka needs {missing.name}: pip install 'openmessaging-bridge[kafka]'.") from missing
    return KafkaAdapter(options)
