"""Bridges for the table of settings: one with the defaults and one with the changed values for each comparison."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.launch import Bridge
from tests.settings.bridge_client import BridgeClient, Resources
from tests.settings.table import Comparison

Opened = Callable[[Comparison, str], BridgeClient]


@pytest.fixture(scope="session")
def resources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resources]:
    with Resources.ready(tmp_path_factory.mktemp("resources")) as ready:
        yield ready


@pytest.fixture(scope="session")
def _bridges() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="session")
def default(resources: Resources, tmp_path_factory: pytest.TempPathFactory, _bridges: ExitStack) -> Opened:
    """Return a bridge with the defaults; comparisons with the same server and the same needs share it."""
    started: dict[str, BridgeClient] = {}

    def opened(comparison: Comparison, server: str) -> BridgeClient:
        settings = comparison.default_variables(resources)
        key = f"{server} {comparison.backend} {sorted(settings.items())}"
        client = started.get(key)
        if client is None or comparison.ends_bridges:
            bridge = _bridges.enter_context(_start(tmp_path_factory.mktemp("default"), comparison, server, settings))
            client = _bridges.enter_context(BridgeClient(bridge, resources))
            if not comparison.ends_bridges:
                started[key] = client
        return client

    return opened


@pytest.fixture
def changed(resources: Resources, tmp_path: Path) -> Iterator[Opened]:
    """Return a bridge with the changed values of all rows of a comparison."""
    with ExitStack() as stack:

        def opened(comparison: Comparison, server: str) -> BridgeClient:
            bridge = stack.enter_context(_start(tmp_path, comparison, server, comparison.changed_variables(resources)))
            return stack.enter_context(BridgeClient(bridge, resources))

        yield opened


def _start(directory: Path, comparison: Comparison, server: str, settings: dict[str, str]) -> Bridge:
    return Bridge(directory, server=server, backend=comparison.backend.format(directory=directory), settings=settings)
