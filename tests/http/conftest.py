"""Real bridges for the tests of the doors: each kind is started once per worker, and must survive all of them."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that tests.launch can be imported from here

from tests.conformance.frames import Frames
from tests.http.callback_endpoint import Endpoint
from tests.launch import Bridge

Start = Callable[..., Bridge]

MOSTLY_HYPERCORN = pytest.mark.parametrize("server", ["hypercorn", pytest.param("granian", marks=pytest.mark.extended)])
"""For what takes long and is hardly the server's: `make test` leaves the second server out."""


@pytest.fixture(params=["hypercorn", "granian"])
def server(request: pytest.FixtureRequest) -> str:
    """Run the test on both servers."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def _bridges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str, dict[str, str]], Bridge]]:
    started: dict[tuple[str, str, frozenset[tuple[str, str]]], Bridge] = {}

    def bridge(server: str, backend: str, settings: dict[str, str]) -> Bridge:
        key = (server, backend, frozenset(settings.items()))
        if key not in started:
            directory = tmp_path_factory.mktemp("bridge")
            started[key] = Bridge(directory, server=server, backend=backend, settings=settings)
        assert started[key].alive, f"an earlier test has killed the bridge\n{started[key].log}"
        return started[key]

    yield bridge
    try:
        for each in started.values():
            each.begin_to_stop()
        assert [each.wait() for each in started.values()] == [0] * len(started)
    finally:
        for each in started.values():
            each.__exit__(None, None, None)


@pytest.fixture
def start(server: str, _bridges: Callable[[str, str, dict[str, str]], Bridge]) -> Start:
    """Return a running bridge with these OMS_ settings; tests that ask for the same share it."""

    def started(backend: str = "memory://", **settings: str) -> Bridge:
        return _bridges(server, backend, settings)

    return started


@pytest.fixture
def bridge(start: Start) -> Bridge:
    """Return a bridge with its default settings."""
    return start()


@pytest.fixture
def frames(bridge: Bridge) -> Iterator[Frames]:
    """Open one HTTP/2 connection to it, on which anything can be sent."""
    with Frames(bridge.url) as connection:
        yield connection


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    """Serve callbacks for the tests of one file."""
    endpoint = Endpoint().listen()
    yield endpoint
    endpoint.close()


@pytest.fixture
def calling(start: Start, endpoint: Endpoint) -> Bridge:
    """Return a bridge that may call the endpoint, and gives up after three deliveries."""
    return start(**endpoint.settings(OMS_DELIVERY__MAX_DELIVERIES="3"))


@pytest.fixture
def name() -> str:
    """Return a destination that no other test uses."""
    return f"cb-{uuid4().hex}"
