"""The Kafka that the tests share."""

from tests.brokers.fixtures import kafka_servers

__all__ = ["kafka_servers"]
