"""The parts of every scene: a page, its browser, the wire, the bridge. Skipped where no Chromium is installed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that tests.launch can be imported from here

from tests.browser.theatre import CHROMIUM, Browser, Page, Wire
from tests.launch import Bridge

_HERE = Path(__file__).parent

Open = Callable[..., Browser]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip for one reason only."""
    if CHROMIUM is None:
        for item in items:
            if _HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs Chromium: apt-get install chromium"))


@pytest.fixture(params=["hypercorn", "granian"])
def server(request: pytest.FixtureRequest) -> str:
    """Run the test on both servers."""
    name: str = request.param
    return name


@pytest.fixture
def page() -> Iterator[Page]:
    """Serve a page, of an origin of its own."""
    served = Page()
    yield served
    served.close()


@pytest.fixture
def bridge(server: str, page: Page, tmp_path: Path) -> Iterator[Bridge]:
    """Start a bridge that lets that origin in, and keeps its messages when it is killed."""
    journal = tmp_path / "journal"
    with Bridge(
        tmp_path / "bridge",
        server=server,
        backend=f"memory://?journal={journal}",
        settings={"OMS_HTTP__ORIGINS": page.origin},
    ) as started:
        yield started


@pytest.fixture
def wire(bridge: Bridge) -> Iterator[Wire]:
    """Lay a wire to the bridge."""
    laid = Wire(bridge.url)
    yield laid
    laid.close()


@pytest.fixture
def show(tmp_path: Path, page: Page, wire: Wire) -> Iterator[Open]:
    """Return a function that opens the page in a new browser."""
    with ExitStack() as stack:

        def shown(of: Page = page, **asked: str) -> Browser:
            return stack.enter_context(Browser(of, tmp_path / "profile", wire.url, **asked))

        yield shown
