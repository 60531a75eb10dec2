"""The script of the page about gateways, as it stands there, in a real browser: a stream with a token."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import Page, wait_until
from tests.browser.conftest import Open
from tests.docs.page import Page as Document
from tests.http.gateway import Gateway
from tests.launch import Bridge

NAMES = 'const bridge = address.slice(0, -3), token = "billing-token";'


@pytest.fixture
def page() -> Iterator[Page]:
    """Serve a page with that script."""
    script = Document("gateway.md").section("Answers").partition("```js\n")[2].partition("```")[0]
    script = script.replace("show(JSON.parse(line))", "show(JSON.parse(line).data ?? line)")
    script = script.replace("consumerid=page", "consumerid=billing")
    served = Page("snippet.html", f"(async () => {{ {NAMES}\n{script} }})();")
    yield served
    served.close()


@pytest.fixture
def gateway(server: str, page: Page, tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "gateway", server, {"OMS_HTTP__ORIGINS": page.origin}) as started:
        yield started


@pytest.fixture
def bridge(gateway: Gateway) -> Bridge:
    return gateway.bridge


def test_the_documented_script_reads_a_stream_with_a_token(gateway: Gateway, page: Page, open_page: Open) -> None:
    with gateway.client("shop") as shop:
        for body in (b"one", b"two"):
            answer = shop.post("/v1/messages", headers={"x-oms-h-destination": "orders"}, content=body)
            assert answer.status_code == 200
    open_page()
    wait_until(lambda: len(page.of("shown")) == 2, lambda: page.reports)
    assert sorted(report["text"] for report in page.of("shown")) == ["b25l", "dHdv"]
    gateway.write_tokens("ops")
    wait_until(lambda: len(page.of("shown")) == 3, lambda: page.reports)
    assert '"end":"unauthenticated"' in page.of("shown")[2]["text"]
