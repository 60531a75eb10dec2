"""A bridge and what is in front of it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that tests.launch can be imported from here

from tests.launch import Bridge
from tests.proxies.servers import DEFAULT, running


@pytest.fixture(scope="module", params=["hypercorn", pytest.param("granian", marks=pytest.mark.extended)])
def bridge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """Start a bridge for the tests of one file."""
    with Bridge(tmp_path_factory.mktemp("bridge"), server=request.param) as bridge:
        yield bridge


@pytest.fixture(scope="module", params=["none", "nginx", "haproxy"])
def proxy(request: pytest.FixtureRequest) -> str:
    """Return what is in front of the bridge."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def url(proxy: str, bridge: Bridge, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL at which clients reach the bridge; a proxy has its default settings."""
    folder = tmp_path_factory.mktemp("proxy")
    if proxy == "none":
        yield bridge.url
        return
    with running(proxy, DEFAULT[proxy], folder, bridge.url) as proxied:
        yield proxied
