"""For all tests: the logs of bridges and brokers beside a failure."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests import launch
from tests.brokers import broker
from tests.brokers.fixtures import kafka_at_hand, kafka_servers, rabbitmq_at_hand, rabbitmq_url

__all__ = ["kafka_at_hand", "kafka_servers", "rabbitmq_at_hand", "rabbitmq_url"]

_BLACK_BOX = Path(__file__).parent / "conformance"
"""It is also used without this file, and so shows the logs itself."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the logs."""
    report = yield
    if report.failed and _BLACK_BOX not in item.path.parents:
        report.sections += [*launch.logs_of_running(), *broker.logs_of_running()]
    return report
