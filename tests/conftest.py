"""For all tests: the order of the files, shards, which skips are allowed, and brokers' logs beside a failure."""

import json
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

from tests import launch, tiers
from tests.brokers import broker
from tests.brokers.fixtures import kafka_at_hand, kafka_servers, rabbitmq_at_hand, rabbitmq_url

__all__ = ["kafka_at_hand", "kafka_servers", "rabbitmq_at_hand", "rabbitmq_url"]

_BLACK_BOX = Path(__file__).parent / "conformance"
"""It is also used without this file, and so shows the logs itself."""


class _Run:
    """What the controlling process collects: with xdist, every worker's reports arrive there."""

    def __init__(self, config: pytest.Config) -> None:
        self._record = config.getoption("--record-seconds")
        self._strict = tiers.STRICT and config.getoption("--bridge-url", None) is None
        """A bridge that is given may lack what a test needs."""
        self._skipped: list[tuple[str, str]] = []
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note skips and durations."""
        self._seconds[tiers.measured(_file(report.nodeid), extended="extended" in report.keywords)] += report.duration
        if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
            self._skipped.append((report.nodeid, report.longrepr[2].removeprefix("Skipped: ")))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Fail a strict run for a skip that no row of `skips.toml` allows."""
        if self._record:
            known = tiers.read_seconds(tiers.SECONDS_FILE.read_text("utf-8")) | {
                file: round(seconds, 1) for file, seconds in self._seconds.items()
            }
            tiers.SECONDS_FILE.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n", "utf-8")
        if self._strict and self._unexpected() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        yield

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the skips that are not allowed."""
        for test, reason in self._unexpected() if self._strict else ():
            terminalreporter.write_line(f"UNEXPECTED SKIP {test}: {reason} (not in tests/skips.toml)", red=True)

    def _unexpected(self) -> list[tuple[str, str]]:
        return tiers.unexpected(self._skipped, tiers.read_skips(tiers.SKIPS_FILE.read_text("utf-8")))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `make test-all SHARD=…` and `make seconds` use."""
    group = parser.getgroup("openmessaging-bridge")
    group.addoption("--shard", metavar="N/M", help="run one of M even parts of the test files")
    group.addoption(
        "--record-seconds", action="store_true", help="write the seconds of each file to tests/seconds.json"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect in the controlling process only."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Run(config))


@pytest.hookimpl(trylast=True)  # after -m and -k have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start the slowest files first, and keep to one shard if one is asked for."""
    known = tiers.read_seconds(tiers.SECONDS_FILE.read_text("utf-8"))
    seconds: defaultdict[str, float] = defaultdict(float)
    parts = {(_file(item.nodeid), item.get_closest_marker("extended") is not None) for item in items}
    for file, slow in sorted(parts):
        seconds[file] += known.get(tiers.measured(file, extended=slow), tiers.UNKNOWN_SECONDS)
    files = frozenset(seconds)
    wanted = config.getoption("--shard")
    chosen = files
    if wanted:
        try:
            chosen = tiers.shard(files, seconds, wanted)
        except ValueError as error:
            raise pytest.UsageError(f"--shard: {error}") from None
        config.hook.pytest_deselected(items=[item for item in items if _file(item.nodeid) not in chosen])
    places = {file: place for place, file in enumerate(tiers.slowest_first(chosen, seconds))}
    items[:] = sorted(
        (item for item in items if _file(item.nodeid) in chosen), key=lambda item: places[_file(item.nodeid)]
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the logs."""
    report = yield
    if report.failed and _BLACK_BOX not in item.path.parents:
        report.sections += [*launch.logs_of_running(), *broker.logs_of_running()]
    return report


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
