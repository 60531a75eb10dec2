"""A page of another origin in a real browser takes no message, in any way that needs no permission."""

from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.browser.chromium import Browser, Page, wait_until
from tests.browser.test_event_source import HEADERS, store
from tests.launch import Bridge

NAME = "bridge.test"
"""A name for the bridge that is not loopback: over plain http a browser sends it no `Sec-Fetch-Site`."""


def refusals(bridge: Bridge) -> int:
    """Return how many requests the data port has answered 403."""
    text = httpx.get(f"{bridge.management}/metrics", trust_env=False).text
    lines = [line for line in text.splitlines() if line.startswith("oms_requests_total") and 'status="403"' in line]
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines)


def open_groups(bridge: Bridge) -> list[str]:
    """Return the groups that have taken, or have tried to take, messages."""
    status = httpx.get(f"{bridge.management}/status", trust_env=False).json()
    return [group["consumerId"] for group in status["groups"]]


@pytest.mark.parametrize("name", ["", pytest.param(NAME, marks=pytest.mark.extended)])
def test_a_page_of_another_origin_takes_nothing(name: str, server: str, tmp_path: Path) -> None:
    attacker = Page("cross_site.html")
    try:
        with Bridge(tmp_path / "bridge", server=server, settings={"OMS_HTTP__HOSTS": NAME}) as bridge:
            store(bridge, *[b"%d" % number for number in range(100)])
            url = f"http://{name}:{urlsplit(bridge.url).port}" if name else bridge.url
            with Browser(attacker, tmp_path / "profile", url, resolve=name):
                wait_until(lambda: bool(attacker.of("tried")), lambda: attacker.reports)
            (report,) = attacker.of("tried")
            assert refusals(bridge) >= len(report["ways"])  # the page did reach the bridge
            assert open_groups(bridge) == []
            consumer = HEADERS | {"x-oms-source": "orders", "x-oms-consumerid": "image", "x-oms-waitmills": "0"}
            taken = httpx.get(f"{bridge.url}/v1/push", headers=consumer, trust_env=False)
            assert taken.text.count("x-oms-h-messageid") == 100
    finally:
        attacker.close()
