"""That no program of the pages about moving is left out by the tests that run them."""

import re

import pytest

from tests.docs.page import Page
from tests.migrate.programs import blocks

RUN = {
    *("native_producer.py", "native_consumer.py", "http_producer.py", "http_consumer.py"),
    *("curl_producer.sh", "curl_consumer.sh", "orders.go"),
}
"""What the tests start."""


@pytest.mark.parametrize("name", ["migrate-from-kafka.md", "migrate-from-rabbitmq.md"])
def test_every_program_of_the_page_is_run(name: str) -> None:
    page = Page(name)
    assert set(blocks(page)) == RUN
    assert len(re.findall(r"^```(?:python|bash|go)$", page.text, re.MULTILINE)) == len(RUN)
