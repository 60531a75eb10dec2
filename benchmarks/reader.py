"""A reader of push streams that acknowledges what they bring, all on one connection."""

import re
import time
from collections.abc import Sequence
from typing import Final

from benchmarks import talk
from benchmarks.rawh2 import Connection, pack

AT_ONCE: Final = 250
"""Receipts of one acknowledgement: a quarter of the credit, and 8 KiB of headers."""

_RECEIPT: Final = re.compile(rb'(?:x-oms-receipt: |"receipt":")([0-9a-f-]+)[\r"]')
"""In a part of multipart/mixed, in a line of JSON."""
_TAIL: Final = 80
"""Bytes in which a receipt that is cut in two fits."""


def record(url: str, path: str, accept: str) -> bytes:
    """Read one stream to its end and return its bytes."""
    pieces: list[bytes] = []
    connection = Connection(url, hearing=lambda _, piece: pieces.append(piece))
    connection.ask(pack(url, "GET", path, [("accept", accept)]))
    connection.flush()
    while not connection.answers():
        pass
    connection.close()
    return b"".join(pieces)


def acknowledge(url: str, blocks: Sequence[bytes], number: int) -> float:
    """Open a stream for each header block, acknowledge `number` messages; messages per second until all is done."""
    reader = _Reader(url, number)
    begun = time.perf_counter()
    reader.read(blocks)
    return number / (time.perf_counter() - begun)


class _Reader:
    def __init__(self, url: str, number: int) -> None:
        self._url = url
        self._missing = number
        self._receipts: list[str] = []
        self._tails: dict[int, bytes] = {}
        self._connection = Connection(url, hearing=self._hear)

    def read(self, blocks: Sequence[bytes]) -> None:
        connection = self._connection
        for block in blocks:
            self._tails[connection.ask(block)] = b""
        connection.flush()
        answered = 0
        while answered < connection.asked:
            answered += len(connection.answers())
            connection.flush()
        connection.close()
        if self._missing:
            raise RuntimeError(f"{self._missing} messages did not come.")

    def _hear(self, stream: int, piece: bytes) -> None:
        if stream not in self._tails:
            return  # what an acknowledgement is answered
        text = self._tails[stream] + piece
        end = 0
        for found in _RECEIPT.finditer(text):
            self._receipts.append(found[1].decode("ascii"))
            end = found.end()
        self._tails[stream] = text[max(end, len(text) - _TAIL) :]
        while len(self._receipts) >= min(AT_ONCE, self._missing) > 0:
            some, self._receipts = self._receipts[:AT_ONCE], self._receipts[AT_ONCE:]
            self._missing -= len(some)
            (path,), headers, *_ = talk.acks(some)
            self._connection.ask(pack(self._url, "POST", path, headers))
