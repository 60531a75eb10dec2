"""The script of the HTTP profile, as it stands there, in a real browser."""

from collections.abc import Iterator

import httpx
import pytest

from tests.browser.chromium import Page, wait_until
from tests.browser.conftest import Open
from tests.browser.test_event_source import store
from tests.docs.page import Page as Document
from tests.launch import Bridge

ADDRESS = '"http://127.0.0.1:8080/v1"'


@pytest.fixture
def page() -> Iterator[Page]:
    """Serve a page with that script."""
    script = Document("http-profile.md").section("In a browser").partition("```js\n")[2].partition("```")[0]
    assert script.count(ADDRESS) == 1
    served = Page("snippet.html", script.replace(ADDRESS, "address"))
    yield served
    served.close()


def unsettled(bridge: Bridge) -> int:
    """Return the messages that the group of the page has not acknowledged."""
    groups = httpx.get(f"{bridge.management}/status", trust_env=False).json()["groups"]
    return sum(int(group["prefetched"]) for group in groups)


def test_the_documented_script_shows_text_in_utf_8_and_acknowledges(
    bridge: Bridge, page: Page, open_page: Open
) -> None:
    texts = ["Zürich ✓", "плата 12 €", "\U0001f4e6 日本", "plain", ""]
    store(bridge, *(text.encode() for text in texts))
    open_page()
    wait_until(lambda: len(page.of("shown")) == len(texts), lambda: page.reports)
    assert [report["text"] for report in page.of("shown")] == texts
    wait_until(lambda: unsettled(bridge) == 0, lambda: unsettled(bridge))
