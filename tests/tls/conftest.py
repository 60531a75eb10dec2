"""Real bridges behind TLS: each kind is started once for each worker, and must survive all tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.launch import Bridge
from tests.tls.pki import Pki

Secured = Callable[..., Bridge]


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(params=["hypercorn", "granian"])
def server(request: pytest.FixtureRequest) -> str:
    """Run the test on both servers."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def _secured(pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with ExitStack() as stack:
        started: dict[tuple[str, bool], Bridge] = {}

        def bridge(server: str, *, mutual: bool) -> Bridge:
            if (server, mutual) not in started:
                settings = pki.settings(mutual=mutual)
                made = Bridge(tmp_path_factory.mktemp("bridge"), server=server, settings=settings)
                started[server, mutual] = stack.enter_context(made)
            assert started[server, mutual].alive, started[server, mutual].log
            return started[server, mutual]

        yield bridge
        logs = {key: [line for line in each.log.splitlines() if '"error"' in line] for key, each in started.items()}
        assert not any(logs.values()), f"a client's mistake is no error of the bridge: {logs}"


@pytest.fixture
def secured(server: str, _secured: Secured) -> Secured:
    """Return a running bridge; `mutual`: one that demands certificates of its clients."""

    def bridge(*, mutual: bool = False) -> Bridge:
        return _secured(server, mutual=mutual)

    return bridge
