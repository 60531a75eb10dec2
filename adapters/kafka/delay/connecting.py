"""Builds kafka-python's producer or consumer, and lets go of everything where that fails: the library does not."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from adapters.kafka.drivers.kafka_python.network import BOOTSTRAP_TIMEOUT, Client
from adapters.kafka.options import METADATA_AGE, REQUEST_TIMEOUT

T = TypeVar("T")


def connect(kind: Callable[..., T], settings: Mapping[str, Any]) -> T:
    """Connect one. Raises kafka-python's errors."""
    clients: list[Client] = []

    def client(**configs: Any) -> Client:  # noqa: ANN401 - the library's settings
        clients.append(Client(**configs))
        return clients[0]

    try:
        return kind(
            **settings,
            kafka_client=client,
            bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT,
            request_timeout_ms=REQUEST_TIMEOUT,
            metadata_max_age_ms=METADATA_AGE,
            allow_auto_create_topics=False,
            metrics_enabled=False,
        )
    except BaseException:
        for each in clients:
            each.close()
        raise
