"""Splits a body without end into runs of whole lines. Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

RUN: Final = 64 << 10
"""Bytes of a run, unless it is one line; so much is decoded in one step."""


class Line(NamedTuple):
    """One line of a body."""

    number: int
    """1 for the first line; lines of white space count, and are left out."""
    text: bytes | None
    """None: the line is longer than the limit."""


class Run(NamedTuple):
    """Lines that follow each other."""

    number: int
    """Of the first line."""
    length: int
    """Number of lines."""
    text: bytes | None
    """With line feeds between the lines, and none at the end. None: it is one line, longer than the limit."""

    def lines(self) -> Iterator[Line]:
        """Yield the lines, except those of white space."""
        if self.text is None:
            yield Line(self.number, None)
            return
        for number, text in enumerate(self.text.split(b"\n"), self.number):
            if text.strip():
                yield Line(number, text)


class LineSplitter:
    """Collects pieces of a body, and holds no more of a line than `limit` bytes."""

    def __init__(self, limit: int, most: int) -> None:
        """`most`: lines of a run."""
        self._limit = limit
        self._most = most
        self._unfinished = bytearray()
        self._too_long = False
        self._number = 1

    @property
    def size(self) -> int:
        """Bytes that are held of a line without its end."""
        return len(self._unfinished)

    def feed(self, piece: bytes) -> list[Run]:
        """Return the lines that end in this piece."""
        first = piece.find(b"\n")
        if first < 0:
            self._add(piece)
            return []
        self._add(piece[:first])
        last = piece.rfind(b"\n")
        whole = b"" if self._too_long else bytes(self._unfinished)
        if not self._too_long and first < last and len(whole) + last - first <= RUN:
            self._unfinished.clear()
            runs = self._runs(whole + piece[first:last])
        else:
            runs = self.end()
            if first < last:
                runs += self._runs(piece[first + 1 : last])
        self._add(piece[last + 1 :])
        return runs

    def end(self) -> list[Run]:
        """End the line that was begun, which needs no line feed at the end of the body. Returns it, or nothing."""
        number, self._number = self._number, self._number + 1
        text, self._unfinished = bytes(self._unfinished), bytearray()
        if self._too_long:
            self._too_long = False
            return [Run(number, 1, None)]
        return [Run(number, 1, text)] if text.strip() else []

    def _runs(self, text: bytes) -> list[Run]:
        """Return whole lines as runs that are not too large."""
        count = text.count(b"\n") + 1
        if len(text) <= min(RUN, self._limit) and count <= self._most:
            self._number += count
            return [Run(self._number - count, count, text)]
        if count > 1:
            middle = text.rfind(b"\n", 0, len(text) // 2 + 1)
            if middle < 0:
                middle = text.find(b"\n")
            return self._runs(text[:middle]) + self._runs(text[middle + 1 :])
        self._add(text)
        return self.end()

    def _add(self, part: bytes) -> None:
        if self._too_long or len(self._unfinished) + len(part) > self._limit:
            self._too_long = True
            self._unfinished.clear()
        else:
            self._unfinished += part
