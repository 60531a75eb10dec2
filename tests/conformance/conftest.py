"""Which bridge the suite runs against: the one of `--bridge-url`, or in the repository a few that it starts itself."""

import importlib.util
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from .conversation import Conversation, Target, connection
from .places import PLACES, Place, places_for

if TYPE_CHECKING:
    from tests.launch import Bridge

_HERE: Final = Path(__file__).resolve().parent
_LAUNCHER: Final = _HERE.parent / "launch.py"


_BROKERS: Final = ("kafka", "rabbitmq")
_SETTINGS: Final = {
    "OMS_DELIVERY__GROUP_IDLE": "3000",
    "OMS_LIMITS__DESTINATIONS": "100000",
    "OMS_LIMITS__GROUPS": "100000",
}
"""Every test has its own groups, and what a backend holds for one should not be held to the end of the suite. All tests
are one client, whose destinations and groups are those of hundreds."""
_MARKERS: Final = (
    "wire: judges what every backend shares, such as the parser; runs once for each server",
    "needs(*facts): runs where /v1/capabilities has these: durable, sharedGroups, transactions",
    "slow_on_brokers: takes seconds on a broker, which hardly matters to it: there only `make test-all` runs it",
    "extended: `make test` leaves it out, `make test-all` runs it",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Name the bridge under test."""
    group = parser.getgroup("openmessaging")
    group.addoption("--bridge-url", help="URL of the bridge under test, such as http://127.0.0.1:8080")
    group.addoption("--bridge-management-url", help="URL of its management port, for the tests that look there")


def pytest_configure(config: pytest.Config) -> None:
    """Register the suite's markers, and say at once what is missing, not in each test."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    if config.getoption("--bridge-url", None) is None and not _LAUNCHER.is_file():
        raise pytest.UsageError("the conformance suite needs --bridge-url URL, the bridge to test")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test against the bridge of --bridge-url, or at each place where it may fail for a separate reason."""
    if "place" not in metafunc.fixturenames:
        return
    url = metafunc.config.getoption("--bridge-url", None)
    if url:
        metafunc.parametrize("place", [Place(url.rstrip("/"))], indirect=True, ids=[url])
        return
    test = metafunc.definition
    needs = frozenset(fact for marker in test.iter_markers("needs") for fact in marker.args)
    wire, slow_on_brokers = (test.get_closest_marker(name) is not None for name in ("wire", "slow_on_brokers"))
    places = places_for(wire=wire, needs=needs, slow_on_brokers=slow_on_brokers)
    params = [
        pytest.param(PLACES[name], id=name, marks=[pytest.mark.extended] if extended else [])
        for name, extended in places.items()
    ]
    metafunc.parametrize("place", params, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run coroutines as tests whatever the asyncio mode of the project that the suite is started from."""
    for item in items:
        if _HERE in item.path.parents and inspect.iscoroutinefunction(getattr(item, "function", None)):
            item.add_marker(pytest.mark.asyncio)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the bridges' logs beside a failure."""
    report = yield
    if report.failed and _HERE in item.path.parents and "tests.launch" in sys.modules:
        report.sections += sys.modules["tests.launch"].logs_of_running()
    return report


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    """Name the bridge of this run of the test."""
    where: Place = request.param
    return where


@pytest.fixture(scope="session")
def start(request: pytest.FixtureRequest) -> Callable[..., "Bridge"]:
    """Start a bridge, at the first that needs one with the broker that all of them share."""
    alone = request.config.getoption("--bridge-url", None) is not None
    # asked for now, though perhaps for nothing: a fixture asked for later ends before this one and its bridges do
    brokers = {} if alone else {name: request.getfixturevalue(f"{name}_at_hand") for name in _BROKERS}

    def bridge_in(directory: Path, place: Place, settings: dict[str, str]) -> "Bridge":
        directory.mkdir(exist_ok=True)
        named = directory / "name"
        if not named.exists():
            named.write_text(f"t{uuid4().hex[:12]}", "ascii")
        values = {"directory": directory / "journal", "name": named.read_text("ascii")}
        values |= {name: at_hand() for name, at_hand in brokers.items() if f"{{{name}}}" in place.backend}
        backend = place.backend.format_map(values)
        bridge: Bridge = _launcher().Bridge(
            directory, server=place.server, backend=backend, settings=_SETTINGS | settings
        )
        return bridge

    return bridge_in


@pytest.fixture(scope="session")
def started(
    start: Callable[..., "Bridge"], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Place], "Bridge"]]:
    """Start each bridge once; at the end each must stop as it should."""
    bridges: dict[Place, Bridge] = {}

    def bridge_at(place: Place) -> "Bridge":
        if place not in bridges:
            bridges[place] = start(tmp_path_factory.mktemp("bridge"), place, {})
        return bridges[place]

    yield bridge_at
    try:
        for bridge in bridges.values():
            bridge.begin_to_stop()
        assert [bridge.wait() for bridge in bridges.values()] == [0] * len(bridges)
    finally:
        for bridge in bridges.values():
            bridge.__exit__(None, None, None)


@pytest.fixture
def bridge(place: Place, started: Callable[[Place], "Bridge"], pytestconfig: pytest.Config) -> Target:
    """Describe the bridge under test, which other tests use at the same time."""
    if place.url is not None:
        return _target(place.url, pytestconfig.getoption("--bridge-management-url", None))
    running = started(place)
    return _target(running.url, running.management)


@pytest_asyncio.fixture
async def talk(bridge: Target) -> AsyncIterator[Conversation]:
    """Open a connection to it, with a destination and a group of the test's own."""
    async with connection(bridge.url) as http:
        yield Conversation(http)


@pytest.fixture
def launch(place: Place, tmp_path: Path, start: Callable[..., "Bridge"]) -> Iterator[Callable[..., "Bridge"]]:
    """Start bridges of the test's own, which it may stop and kill.

    One of the same number is the same bridge started again: it finds what the earlier one has left.
    """
    if place.url is not None:
        pytest.skip("the test starts and stops its own bridges")
    bridges: list[Bridge] = []

    def launch_one(number: int = 0, **settings: str) -> "Bridge":
        bridges.append(start(tmp_path / str(number), place, settings))
        return bridges[-1]

    yield launch_one
    for bridge in bridges:
        bridge.__exit__(None, None, None)


@cache
def _target(url: str, management: str | None) -> Target:
    with httpx.Client(http1=False, http2=True, trust_env=False, timeout=30) as http:
        # the first delay of a backend may take a while: RabbitMQ's delay levels are trusted after 2 s
        first = {"x-oms-version": "1.0.0", "x-oms-h-destination": f"first-{uuid4().hex}", "x-oms-h-delaytime": "1"}
        http.post(f"{url}/v1/messages", headers=first)
        return Target(url, management, http.get(f"{url}/v1/capabilities").json())


def _launcher() -> Any:  # noqa: ANN401 - a module that exists in the repository only
    if "tests.launch" not in sys.modules:
        spec = importlib.util.spec_from_file_location("tests.launch", _LAUNCHER)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["tests.launch"] = module
        spec.loader.exec_module(module)
    return sys.modules["tests.launch"]
