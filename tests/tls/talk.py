"""What clients say to a bridge over TLS: httpx for whole requests, a socket for single bytes."""

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import httpx

from tests.launch import Bridge

PATIENCE: Final = 60.0
"""Seconds until something that does not come is a failure: a guard, no measurement."""


def fresh() -> str:
    """Return a destination that no other test uses."""
    return f"tls-{uuid4().hex}"


def client(bridge: Bridge, context: ssl.SSLContext, *, http2: bool) -> httpx.Client:
    """Return a client of the bridge under the name in its certificate."""
    url = f"https://localhost:{urlsplit(bridge.url).port}"
    return httpx.Client(base_url=url, verify=context, http1=not http2, http2=http2, trust_env=False, timeout=PATIENCE)


def named(**headers: object) -> dict[str, str]:
    """Return the headers of a request; `_` stands for `-`."""
    texts = {f"x-oms-{name.replace('_', '-')}": str(value) for name, value in headers.items()}
    return {"x-oms-version": "1.0.0"} | texts


def produce(talk: httpx.Client, target: str, body: bytes) -> httpx.Response:
    return talk.post("/v1/messages", headers=named(h_destination=target), content=body)


def pull(talk: httpx.Client, target: str, group: str = "g") -> httpx.Response:
    return talk.get("/v1/messages", headers=named(source=target, consumerid=group, ack="true"))


def pushed(talk: httpx.Client, target: str, accept: str) -> httpx.Response:
    """Read a push stream of two messages to its end."""
    asked = named(source=target, consumerid=accept.replace("/", "."), maxmessages=2)
    return talk.get("/v1/push", headers={**asked, "accept": accept})


def parts_of(response: httpx.Response) -> list[bytes]:
    """Return the bodies of a multipart answer."""
    head = b"content-type: " + response.headers["content-type"].encode("ascii") + b"\r\n\r\n"
    message = BytesParser(policy=policy.HTTP).parsebytes(head + response.content)
    assert isinstance(message, EmailMessage)
    return [part.get_content() for part in message.iter_parts()]


def lines_of(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Yield what the lines of an ndjson or event stream hold."""
    for line in lines:
        text = line.removeprefix("data: ")
        if text.startswith("{"):
            yield json.loads(text)


def counts(bridge: Bridge) -> Mapping[str, int]:
    """Return the counts of /status."""
    status = httpx.get(f"{bridge.management}/status", trust_env=False, timeout=PATIENCE).json()
    counted: Mapping[str, int] = status["counts"]
    return counted


def connected(bridge: Bridge) -> socket.socket:
    """Open a connection without TLS."""
    parts = urlsplit(bridge.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE)


def to_the_end(connection: socket.socket) -> bytes:
    """Read until the other side ends the connection; TimeoutError if it does not."""
    got = bytearray()
    try:
        while data := connection.recv(65536):
            got += data
    except (ConnectionError, ssl.SSLError):
        pass
    return bytes(got)


def wait_until(done: Callable[[], object], what: str) -> None:
    """Wait for a condition; AssertionError if it does not come."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, f"it did not come: {what}"
        time.sleep(0.02)
