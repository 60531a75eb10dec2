"""A message with a value of a wrong type raises `TypeError` before anything is sent, by every method."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from bridge.client import Client
from bridge.client.message_types import check_types
from bridge.message import Message
from tests.mock_transport import MockTransport

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"body": {"a": 1}}, r"Message\.body must be bytes, not dict; .*json\.dumps"),
    ({"body": "text"}, r"Message\.body must be bytes, not str; .*\.encode\(\)"),
    ({"body": None}, r"Message\.body must be bytes, not None"),
    ({"body": [("a", "b")]}, r"Message\.body must be bytes, not list"),
    ({"destination": b"shop"}, r"Message\.destination must be str, not bytes"),
    ({"message_key": 7}, r"Message\.message_key must be str, not int"),
    ({"priority": "5"}, r"Message\.priority must be int, not str"),
    ({"priority": True}, r"Message\.priority must be int, not bool"),
    ({"delay_time": 1.5}, r"Message\.delay_time must be int, not float"),
    ({"content_type": b"text/plain"}, r"Message\.content_type must be str, not bytes"),
    ({"properties": {"n": 1}}, r"Message\.properties must map str to str, not str to int"),
    ({"properties": [("a", "1")]}, r"Message\.properties must be a mapping of str to str, not list"),
]


async def prepare(client: Client, message: Message) -> None:
    async with client.transaction() as transaction:
        await transaction.produce(message)


CALLS: dict[str, Callable[[Client, Message], Awaitable[object]]] = {
    "produce": lambda client, message: client.produce(message),
    "produce with require": lambda client, message: client.produce(message, require=["qos"]),
    "produce_batch": lambda client, message: client.produce_batch([Message("shop"), message]),
    "produce_batch as JSON": lambda client, message: client.produce_batch([message], form="json"),
    "produce_many": lambda client, message: client.produce_many([Message("shop")] * 600 + [message]),
    "a transaction": prepare,
}


@pytest.mark.parametrize("options", [{}, {"linger_ms": 0}, {"retry_ms": 1000}])
async def test_a_value_of_a_wrong_type_is_a_type_error(options: dict[str, Any], subtests: pytest.Subtests) -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(500)

    async with Client("http://bridge:8080", transport=MockTransport(answer), **options) as client:
        for values, sentence in WRONG:
            for name, call in CALLS.items():
                with subtests.test(f"{name}: {values}"), pytest.raises(TypeError, match=sentence):
                    await call(client, Message("shop")._replace(**values))
    assert requests == []


def test_bytes_of_any_kind_are_a_body() -> None:
    for body in (b"a", bytearray(b"b"), memoryview(b"c")):
        check_types(Message("shop")._replace(body=body))  # type: ignore[arg-type]  # what programs pass
