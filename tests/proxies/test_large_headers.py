"""Messages with many or large properties: each documented client can read them, without a proxy and behind each."""

import asyncio
import base64
import email.parser
import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import aiohttp
import httpx
import pytest
import requests

from bridge.client import Client
from bridge.message import Message
from tests.trouble import PATIENCE

PROGRAMS: Final = Path(__file__).with_name("clients")
COMPILER: Final = 600.0
"""Seconds until a program is given up, its compiler included: a guard, not a measurement."""
COUNTS: Final = (1, 63, 64, 65, 85, 120)
SIZES: Final = tuple(kilobytes << 10 for kilobytes in (1, 3, 4, 5, 9, 20))


class Pulled(NamedTuple):
    """A response as a client has read it; names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Read = Callable[[str, int], list[Pulled]]


def with_http_client(url: str, count: int) -> list[Pulled]:
    target, pulled = urlsplit(url), []
    for _ in range(count):
        connection = http.client.HTTPConnection(target.netloc, timeout=PATIENCE)
        connection.request("GET", f"{target.path}?{target.query}")
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        pulled.append(Pulled(response.status, headers, response.read()))
        connection.close()
    return pulled


def with_requests(url: str, count: int) -> list[Pulled]:
    with requests.Session() as session:
        session.trust_env = False
        found = [session.get(url, timeout=PATIENCE) for _ in range(count)]
    return [Pulled(each.status_code, {n.lower(): v for n, v in each.headers.items()}, each.content) for each in found]


def with_httpx(url: str, count: int) -> list[Pulled]:
    with httpx.Client(trust_env=False, timeout=PATIENCE) as client:
        found = [client.get(url) for _ in range(count)]
    return [Pulled(each.status_code, dict(each.headers), each.content) for each in found]


def with_aiohttp(url: str, count: int) -> list[Pulled]:
    async def reading() -> list[Pulled]:
        pulled = []
        async with aiohttp.ClientSession() as session:
            for _ in range(count):
                async with session.get(url) as response:
                    headers = {name.lower(): value for name, value in response.headers.items()}
                    pulled.append(Pulled(response.status, headers, await response.read()))
        return pulled

    return asyncio.run(reading())


def with_curl(url: str, count: int) -> list[Pulled]:
    pulled = []
    for _ in range(count):
        command = ["curl", "-sS", "-i", "--noproxy", "*", url]
        head, _, body = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True).stdout.partition(
            b"\r\n\r\n"
        )
        status, _, lines = head.partition(b"\r\n")
        headers = email.parser.BytesParser().parsebytes(lines)
        pulled.append(Pulled(int(status.split()[1]), {n.lower(): v for n, v in headers.items()}, body))
    return pulled


def program(name: str, *command: str) -> Read:
    """Return what runs a program of the folder `clients`."""

    def read(url: str, count: int) -> list[Pulled]:
        path = f"{os.environ['PATH']}:/usr/local/go/bin"
        found = shutil.which(command[0], path=path)
        if found is None:
            pytest.skip("the toolchain is not installed")
        environ = os.environ | {"PATH": path, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        done = subprocess.run(
            [found, *command[1:], str(PROGRAMS / name), url, str(count)],
            env=environ,
            capture_output=True,
            text=True,
            timeout=COMPILER,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        lines = map(json.loads, done.stdout.splitlines())
        return [Pulled(each["status"], each["headers"], base64.b64decode(each["body"])) for each in lines]

    return read


READ: Final[dict[str, Read]] = {
    "http.client": with_http_client,
    "requests": with_requests,
    "httpx": with_httpx,
    "aiohttp": with_aiohttp,
    "curl": with_curl,
    "Node: fetch": program("pull.mjs", "node"),
    "Go: net/http": program("pull.go", "go", "run"),
    "Java: HttpClient": program("Pull.java", "java"),
}
QUICK: Final = ("http.client", "requests", "httpx", "aiohttp", "curl")
MESSAGES: Final = [
    *({f"n{number}": "value" for number in range(count)} for count in COUNTS),
    *({"large": "x" * size} for size in SIZES),
    {"Umlaut": "ü" * 700},
    {f"Name {number}": "v" for number in range(120)},
]
"""The properties of each message."""


def stored(url: str) -> str:
    """Store a message with each of the properties; returns the destination."""
    destination = f"large-{uuid4().hex}"
    batch = [
        {"header": {"destination": destination}, "extensionHeader": {"messageKey": "k"}, "properties": properties}
        for properties in MESSAGES
    ]
    headers = {"x-oms-version": "1.0.0"}
    answer = httpx.post(f"{url}/v1/messages", headers=headers, json=batch, trust_env=False, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    return destination


def properties_of(pulled: Pulled) -> dict[str, str]:
    """Read them as the documents say."""
    if pulled.headers.get("x-oms-form") == "json":
        assert pulled.headers["content-type"] == "application/vnd.oms.message+json"
        properties: dict[str, str] = json.loads(pulled.body)["properties"]
        return properties
    found = {}
    for name, value in pulled.headers.items():
        if name.startswith("x-oms-p-"):
            text = unquote(value.removeprefix("UTF-8''")) if name.endswith("*") else value
            found[unquote(name.removeprefix("x-oms-p-").removesuffix("*"))] = text
    return found


@pytest.mark.parametrize(
    "client", [pytest.param(each, marks=() if each in QUICK else pytest.mark.extended) for each in READ]
)
def test_a_client_reads_all_properties(client: str, url: str) -> None:
    destination = stored(url)
    pulled = READ[client](f"{url}/v1/messages?version=1.0.0&source={destination}&consumerid=g", len(MESSAGES))
    assert [each.status for each in pulled] == [200] * len(MESSAGES)
    assert [properties_of(each) for each in pulled] == MESSAGES
    forms = [each.headers.get("x-oms-form", "headers") for each in pulled]
    assert forms == [
        *(["headers"] * 3 + ["json"] * 3),
        *(["headers"] * 2 + ["json"] * 4),
        *["json"] * 2,
    ]


async def test_the_python_client_decodes_the_form(url: str) -> None:
    destination = stored(url)
    async with Client(url) as client:
        for properties in MESSAGES:
            pulled = await client.pull(destination, "g")
            assert pulled is not None
            assert (pulled.message.properties, pulled.message.message_key) == (properties, "k")
            assert pulled.lease_until is not None
            await client.ack(pulled.receipt or "")
        assert await client.pull(destination, "g") is None


async def test_a_long_message_id_is_no_header_of_a_reply(url: str) -> None:
    message = Message(f"large-{uuid4().hex}", b"body", message_id="i" * 5000)
    async with Client(url) as client:
        produced = await client.produce(message)
        pulled = await client.pull(message.destination, "g")
    assert (produced.message_id, produced.partition) == (message.message_id, 0)
    assert pulled is not None
    assert (pulled.message.body, pulled.message.message_id, pulled.delivery_count) == (b"body", message.message_id, 1)
