"""The page about CloudEvents: its requests and its programs work on a bridge."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.docs.page import Page
from tests.http.callback_endpoint import Endpoint
from tests.launch import Bridge

PAGE: Final = Page("cloudevents.md")


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint().listen()
    yield endpoint
    endpoint.close()


@pytest.fixture
def bridge(tmp_path: Path, endpoint: Endpoint) -> Iterator[Bridge]:
    with Bridge(tmp_path, settings=endpoint.settings()) as bridge:
        yield bridge


def test_each_request_and_each_program_works(bridge: Bridge, endpoint: Endpoint) -> None:
    answers = []
    with httpx.Client(base_url=bridge.url, trust_env=False, timeout=60) as http:
        for block in re.findall(r"```http\n(.*?)\n```", PAGE.text, re.DOTALL):
            head, _, body = block.partition("\n\n")
            line, *fields = head.replace("http://127.0.0.1:8081", endpoint.url("")).splitlines()
            method, path, _ = line.split()
            headers = dict(field.split(": ", 1) for field in fields)
            path += "&waitmills=0" if method == "GET" else ""
            answers.append(http.request(method, path, headers=headers, content=body.encode() if body else None))
    *produced, registered, streamed = answers
    assert [answer.status_code for answer in answers] == [200, 200, 200, 201, 200], answers
    assert [answer.json()["messageId"] for answer in produced[:2]] == ["order-7", "order-8"]
    assert registered.json()["form"] == "application/cloudevents"
    events = [json.loads(line) for line in streamed.text.splitlines()[:-1]]
    assert {event["id"]: event.get("data") for event in events} == {
        "order-7": {"total": 12.5},
        "order-8": {"total": 12.5},
        "order-9": {"total": 3},
        "order-10": None,
    }
    assert len(endpoint.wait_for("/orders", 4)) == 4
    produce, consume = re.findall(r"```python\n(.*?)```", PAGE.text, re.DOTALL)
    handled: list[Any] = []
    scope = {"bridge": bridge.url, "handle": handled.append}
    exec(produce, scope)  # noqa: S102 - our own page
    for _ in range(5):
        exec(consume, scope)  # noqa: S102 - our own page
    assert {event.get_type() for event in handled} == {"order.created"}
    assert len({event.get_id() for event in handled}) == 5
