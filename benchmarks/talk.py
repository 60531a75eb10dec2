"""What is said to the bridge: produces, batches, pulls with their receipts, acknowledgements."""

from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from os import urandom
from typing import Final
from urllib.parse import urlencode

from benchmarks.load import Shot
from benchmarks.rawh2 import Connection, pack

BODY: Final = b"0123456789abcdef" * 64
"""1 KiB."""
SMALL: Final = BODY[:100]
LEASE: Final = 900_000
"""Milliseconds: no lease ends while it is measured."""
BATCH: Final = 1000
"""Messages of one batch where speed is not measured."""

PUSH: Final = "/v1/push"

_PATH: Final = "/v1/messages"
VERSION: Final = ("x-oms-version", "1.0.0")
_SHAPE: Final = (VERSION, ("x-oms-p-region", "eu"), ("content-type", "application/json"))
_STREAMS: Final = 16


def single(destination: str) -> Shot:
    """One message with a key, a property and a content type."""
    key = ("x-oms-h-messagekey", "customer-12")
    return Shot([_PATH], [*_SHAPE, ("x-oms-h-destination", destination), key], BODY)


def small(destination: str) -> Shot:
    """One small message without a key: many of one key would be pulled one after the other."""
    return Shot([_PATH], [*_SHAPE, ("x-oms-h-destination", destination)], SMALL)


def batch(destination: str, size: int, body: bytes | None = BODY, first: int = 0) -> Shot:
    """The same messages as parts of a batch, each with its own key; without `body`, each with its own body.

    That is 256 hexadecimal digits: files of it compress to half, as files of one body would to nothing.
    """
    part = (
        b"--boundary\r\nx-oms-h-destination: %b\r\nx-oms-h-messagekey: customer-%d\r\n"
        b"x-oms-p-region: eu\r\ncontent-type: application/json\r\n\r\n%b\r\n"
    )
    parts = b"".join(
        part % (destination.encode(), first + number, body or urandom(128).hex().encode()) for number in range(size)
    )
    return Shot([_PATH], [VERSION, ("content-type", "multipart/mixed; boundary=boundary")], parts + b"--boundary--\r\n")


def preload(url: str, destination: str, number: int, body: bytes | None = BODY) -> None:
    """Store so many messages, quickly. Every key differs: one that repeats would wait for its turn."""
    connection = Connection(url)
    for first in range(0, number, BATCH):
        shot = batch(destination, min(BATCH, number - first), body, first)
        headers = [*shot.headers, ("content-length", str(len(shot.body)))]
        connection.ask(pack(url, "POST", _PATH, headers), shot.body)
        connection.flush()
        while not connection.answers():
            pass
    connection.close()


def pull_path(source: str, group: str, **more: str | int) -> str:
    """A pull that leases."""
    asked = {"version": "1.0.0", "source": source, "consumerid": group, "ack": "true", "leasemills": LEASE, **more}
    return f"{_PATH}?{urlencode(asked)}"


def ack_path(receipt: str) -> str:
    """An acknowledgement."""
    return f"/v1/ack?{urlencode({'version': '1.0.0', 'receipt': receipt})}"


def push_path(source: str, group: str, number: int, **more: str | int) -> str:
    """A stream that ends after so many messages."""
    asked = {"version": "1.0.0", "source": source, "consumerid": group, "maxmessages": number, **more}
    return f"{PUSH}?{urlencode(asked)}"


def callback_path(source: str, group: str, target: str, batch: int = 1) -> str:
    """A registration, for batches of at most so many messages; an empty target stops it."""
    asked = {"version": "1.0.0", "source": source, "consumerid": group, "callbackurl": target}
    return f"{PUSH}?{urlencode(asked | ({'maxmessages': str(batch)} if batch > 1 else {}))}"


def acks(receipts: Sequence[str]) -> Shot:
    """Many acknowledgements at once."""
    return Shot(["/v1/ack"], [VERSION, ("x-oms-receipt", ",".join(receipts))])


def receipts(url: str, path: str, number: int) -> list[str]:
    """Pull so many messages; raises when there are fewer."""
    connection = Connection(url, unpacking=True)
    found = list(_pulled(connection, pack(url, "GET", path), number))
    connection.close()
    return found


def consume(url: str, source: str, group: str, number: int) -> None:
    """Pull and acknowledge so many messages, as a consumer does: an ack as soon as its receipt is there."""
    connection = Connection(url, unpacking=True)
    for receipt in _pulled(connection, pack(url, "GET", pull_path(source, group)), number):
        connection.ask(pack(url, "POST", ack_path(receipt)))
    connection.close()


def _pulled(connection: Connection, pull: bytes, number: int) -> Iterator[str]:
    """Pull, some at a time; what the caller asks between two receipts is waited for too."""
    coming = repeat(pull, number)
    pulls = {connection.ask(block) for block in islice(coming, _STREAMS)}
    connection.flush()
    missing = number
    others = 0
    while missing or others:
        for answer in connection.answers():
            if answer.stream not in pulls:
                others -= 1
                continue
            pulls.remove(answer.stream)
            missing -= 1
            if b"x-oms-receipt" not in answer.headers:
                raise RuntimeError("There is nothing to pull.")
            before = connection.asked
            yield answer.headers[b"x-oms-receipt"].decode("ascii")
            others += connection.asked - before
            pulls.update(connection.ask(block) for block in islice(coming, 1))
        connection.flush()
