"""That no program of the pages about moving is left out by the tests that run them."""

import re
from typing import Final

import pytest

from tests.docs.page import Page
from tests.migrate.programs import blocks

NATIVE: Final = {"native_producer.py", "native_consumer.py"}
HTTP: Final = {"http_producer.py", "http_consumer.py", "curl_producer.sh", "curl_consumer.sh", "orders.go"}
RUN: Final = {"migrate-from-kafka.md": NATIVE | HTTP, "migrate-from-rabbitmq.md": NATIVE}
"""What the tests start, by the page that shows it; with RabbitMQ they start the other page's `HTTP` as well."""


def test_every_program_of_both_pages_is_run(subtests: pytest.Subtests) -> None:
    for name, programs in RUN.items():
        with subtests.test(msg=name):
            page = Page(name)
            assert set(blocks(page)) == programs
            assert len(re.findall(r"^```(?:python|bash|go)$", page.text, re.MULTILINE)) == len(programs)
