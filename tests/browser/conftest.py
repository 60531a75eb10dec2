"""What every test here needs: a page, its browser, the proxy, the bridge."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that tests.launch can be imported from here

from tests.browser.chromium import CHROMIUM, Browser, LossyProxy, Page
from tests.launch import Bridge

Open = Callable[..., Browser]


@pytest.fixture(autouse=True)
def _chromium() -> None:
    """Without a browser the tests are skipped, and in CI they fail."""
    if CHROMIUM is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("needs Chromium: apt-get install chromium")


@pytest.fixture(params=["hypercorn", pytest.param("granian", marks=pytest.mark.extended)])
def server(request: pytest.FixtureRequest) -> str:
    """Run the test on both servers."""
    name: str = request.param
    return name


@pytest.fixture
def page() -> Iterator[Page]:
    """Serve a page from its own origin."""
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
def proxy(bridge: Bridge) -> Iterator[LossyProxy]:
    """Start a proxy in front of the bridge."""
    started = LossyProxy(bridge.url)
    yield started
    started.close()


@pytest.fixture
def open_page(tmp_path: Path, page: Page, proxy: LossyProxy) -> Iterator[Open]:
    """Return a function that opens the page in a new browser."""
    with ExitStack() as stack:

        def opened(of: Page = page, **asked: str) -> Browser:
            return stack.enter_context(Browser(of, tmp_path / "profile", proxy.url, **asked))

        yield opened
