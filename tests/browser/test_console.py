"""The console at `/docs` in a real browser, under its content security policy: the examples work as they are."""

import re
from pathlib import Path
from typing import NamedTuple

from tests.browser.chromium import wait_until
from tests.browser.devtools import Tab
from tests.launch import Bridge


class Shown(NamedTuple):
    """What the console shows of one request."""

    status: str
    request: str
    """As a curl command."""
    response: str


class Console:
    """The page, used as a person does: open an operation, `Try it out`, `Execute`."""

    def __init__(self, tab: Tab) -> None:
        self._tab = tab
        wait_until(lambda: tab.evaluate("document.querySelectorAll('.opblock').length > 20"), lambda: "no operations")

    def execute(self, operation: str) -> Shown:
        """Send the example of an operation without a change, and return what is shown then."""
        block = f"document.querySelector('[id^=operations-][id$=-{operation}]')"
        self._tab.evaluate(f"{block}.classList.contains('is-open') || {block}.querySelector('button').click()")
        self._click(f"{block}.querySelector('.try-out__btn:not(.cancel)')", unless=f"{block}.querySelector('.execute')")
        if self._tab.evaluate(f"!!{block}.querySelector('.btn-clear')"):
            self._click(f"{block}.querySelector('.btn-clear')")
        self._click(f"{block}.querySelector('.execute')")
        live = f"{block}.querySelector('.live-responses-table tbody')"
        self._wait_for(f"{live}?.querySelector('.response-col_status')")
        texts = [f"{live}.querySelector('.response-col_status')", f"{block}.querySelector('.curl')", live]
        return Shown(*(self._tab.evaluate(f"{each}.textContent") for each in texts))

    def _click(self, element: str, unless: str = "null") -> None:
        self._wait_for(f"{unless} ?? {element}")
        self._tab.evaluate(f"{unless} ?? {element}.click(), null")

    def _wait_for(self, element: str) -> None:
        wait_until(lambda: self._tab.evaluate(f"!!({element})"), lambda: element)


def receipt_of(pulled: Shown) -> str:
    found = re.search(r"x-oms-receipt: (\S+)", pulled.response)
    assert found is not None, pulled
    return found[1]


def test_a_new_user_sends_a_message_pulls_it_and_acknowledges_it(bridge: Bridge, tmp_path: Path) -> None:
    with Tab(f"{bridge.url}/docs", tmp_path / "profile") as tab:
        console = Console(tab)
        for produce in ("produce", "produceStream"):  # the second receipt takes the place of the first in the form
            assert console.execute(produce).status == "200"
            pulled = console.execute("pull")
            assert pulled.status == "200"
            assert "hello" in pulled.response
            acknowledged = console.execute("ack")
            assert acknowledged.status == "204"
            assert f"x-oms-receipt: {receipt_of(pulled)}" in acknowledged.request
        assert console.execute("pull").status == "204", "nothing is left"
        assert tab.evaluate("violations") == []
        assert {url.partition("/docs")[0] for url in tab.requested if "/docs" in url} == {bridge.url}
        assert [url for url in tab.requested if not url.startswith((bridge.url, "data:"))] == []


def test_the_policy_refuses_other_scripts_and_other_hosts(bridge: Bridge, tmp_path: Path) -> None:
    with Tab(f"{bridge.url}/docs", tmp_path / "profile") as tab:
        Console(tab)
        tab.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = 1'}))")
        tab.evaluate("fetch('http://127.0.0.1:9/').catch(() => null), null")
        wait_until(lambda: tab.evaluate("violations.length") == 2, lambda: tab.evaluate("violations"))
        assert tab.evaluate("window.ran") is None
