"""The Kafka that the tests share, and the brokers' logs beside a failure."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.brokers.fixtures import kafka_servers
from tests.brokers.kafka import logs_of_running

__all__ = ["kafka_servers"]
_HERE = Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the logs."""
    report = yield
    if report.failed and _HERE in item.path.parents:
        report.sections += logs_of_running()
    return report
