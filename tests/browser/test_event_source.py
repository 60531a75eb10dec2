"""`EventSource` in a real browser, on a page of another origin: nothing is lost and nothing doubled."""

from pathlib import Path

import httpx
import pytest

from tests.browser.chromium import LossyProxy, Page, wait_until
from tests.browser.conftest import Open
from tests.launch import Bridge

HEADERS = {"x-oms-version": "1.0.0"}
ASKED = {"source": "orders", "consumerid": "page"}


def store(bridge: Bridge, *bodies: bytes) -> None:
    """Store messages in one partition, so that their order is one."""
    with httpx.Client(base_url=bridge.url, trust_env=False) as http:
        for body in bodies:
            headers = HEADERS | {"x-oms-h-destination": "orders", "x-oms-h-partition": "0"}
            assert http.post("/v1/messages", headers=headers, content=body).status_code == 200


def left(bridge: Bridge) -> list[tuple[bytes, str]]:
    """Take what the page's group has left: bodies and deliveryCounts."""
    headers = HEADERS | {"x-oms-source": "orders", "x-oms-consumerid": "page"}
    found = []
    with httpx.Client(base_url=bridge.url, trust_env=False) as http:
        while (answer := http.get("/v1/messages", headers=headers)).status_code == 200:
            found.append((answer.content, answer.headers["x-oms-h-deliverycount"]))
    assert answer.status_code == 204
    return found


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def until_shown(page: Page, bodies: list[bytes]) -> None:
    wait_until(lambda: len(page.bodies) >= len(bodies), lambda: page.reports)
    assert page.bodies == bodies


def until_acknowledged(page: Page, number: int) -> None:
    wait_until(lambda: len(page.of("ack")) >= number, lambda: page.reports)
    assert [report["status"] for report in page.of("ack")] == [204] * number


def test_a_page_takes_and_acknowledges(bridge: Bridge, page: Page, open_page: Open) -> None:
    sent = [*numbered(0, 20), "Zürich ✓\n\ndata: x".encode(), bytes(range(256)), b"", bytes(1 << 20)]
    store(bridge, *sent[:10])
    open_page(**ASKED, ack="true")
    until_shown(page, sent[:10])
    store(bridge, *sent[10:])
    until_shown(page, sent)
    until_acknowledged(page, len(sent))
    assert left(bridge) == []


def test_a_page_of_an_origin_that_is_not_named_gets_nothing(bridge: Bridge, page: Page, open_page: Open) -> None:
    store(bridge, b"secret")
    other = Page()
    try:
        open_page(other, **ASKED, ack="true")
        wait_until(lambda: bool(other.of("error")), lambda: other.reports)
        assert other.reports == [{"kind": "error", "closed": True}]
    finally:
        other.close()
    assert page.reports == []
    assert left(bridge) == [(b"secret", "1")]


def test_under_ack_what_was_lost_on_the_way_comes_again(
    bridge: Bridge, page: Page, proxy: LossyProxy, open_page: Open
) -> None:
    open_page(**ASKED, ack="true")
    store(bridge, *numbered(0, 10))
    until_acknowledged(page, 10)
    proxy.dropping = True
    store(bridge, *numbered(10, 20))
    wait_until(lambda: proxy.dropped.count(b"data: ") == 10, lambda: proxy.dropped)
    proxy.dropping = False
    proxy.disconnect()
    until_shown(page, numbered(0, 20))
    until_acknowledged(page, 20)
    assert [report["message"]["extensionHeader"]["deliveryCount"] for report in page.of("message")] == [1] * 10 + [
        2
    ] * 10
    assert left(bridge) == []


def test_without_ack_what_was_lost_on_the_way_is_sent_once_more(
    bridge: Bridge, page: Page, proxy: LossyProxy, open_page: Open
) -> None:
    open_page(**ASKED)
    store(bridge, *numbered(0, 10))
    until_shown(page, numbered(0, 10))
    proxy.dropping = True
    store(bridge, *numbered(10, 20))
    wait_until(lambda: proxy.dropped.count(b"data: ") == 10, lambda: proxy.dropped)
    proxy.dropping = False
    proxy.disconnect()
    until_shown(page, numbered(0, 20))
    store(bridge, *numbered(20, 30))
    until_shown(page, numbered(0, 30))
    assert len(page.of("open")) == 2
    assert len({report["id"] for report in page.of("message")}) == 30


@pytest.mark.extended
def test_without_ack_an_answer_may_be_lost_twice(
    bridge: Bridge, page: Page, proxy: LossyProxy, open_page: Open
) -> None:
    """The browser comes back with the same Last-Event-ID."""
    open_page(**ASKED)
    store(bridge, *numbered(0, 10))
    until_shown(page, numbered(0, 10))
    proxy.dropping = True
    store(bridge, *numbered(10, 20))
    wait_until(lambda: proxy.dropped.count(b"data: ") == 10, lambda: proxy.dropped)
    proxy.disconnect()
    wait_until(lambda: proxy.dropped.count(b"data: ") == 20, lambda: proxy.dropped)
    store(bridge, *numbered(20, 25))
    wait_until(lambda: proxy.dropped.count(b"data: ") == 25, lambda: proxy.dropped)
    proxy.dropping = False
    proxy.disconnect()
    until_shown(page, numbered(0, 25))
    store(bridge, *numbered(25, 30))
    until_shown(page, numbered(0, 30))


def test_under_ack_nothing_is_lost_when_the_bridge_is_killed(
    bridge: Bridge, page: Page, proxy: LossyProxy, open_page: Open, tmp_path: Path
) -> None:
    open_page(**ASKED, ack="true")
    store(bridge, *numbered(0, 10))
    until_acknowledged(page, 10)
    proxy.dropping = True
    store(bridge, *numbered(10, 20))
    wait_until(lambda: proxy.dropped.count(b"data: ") == 10, lambda: proxy.dropped)
    bridge.kill()
    proxy.dropping = False
    settings = {"OMS_HTTP__ORIGINS": page.origin}
    with Bridge(tmp_path / "second", server=bridge.server, backend=bridge.backend, settings=settings) as second:
        proxy.forward_to(second.url)
        store(second, *numbered(20, 30))
        until_shown(page, numbered(0, 30))
        until_acknowledged(page, 30)
        assert left(second) == []


def test_a_stream_that_ends_says_so(bridge: Bridge, page: Page, open_page: Open) -> None:
    """Without `event: end` the browser would come back, and take more than the page asked for."""
    store(bridge, *numbered(0, 5))
    open_page(**ASKED, ack="true", maxmessages="3")
    wait_until(lambda: bool(page.of("end")), lambda: page.reports)
    assert page.of("end") == [{"kind": "end", "line": {"end": "maxmessages"}}]
    assert page.bodies == numbered(0, 3)
    until_acknowledged(page, 3)
    assert left(bridge) == [(b"3", "1"), (b"4", "1")]
    assert page.of("error") == []


def test_a_bridge_that_stops_says_so(bridge: Bridge, page: Page, open_page: Open) -> None:
    open_page(**ASKED, ack="true")
    store(bridge, b"0")
    until_acknowledged(page, 1)
    assert bridge.terminate() == 0
    wait_until(lambda: bool(page.of("end")), lambda: page.reports)
    assert page.of("end") == [{"kind": "end", "line": {"end": "draining"}}]
