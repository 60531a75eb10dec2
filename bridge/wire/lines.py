"""Splits a body without end into its lines. Pure."""

from typing import NamedTuple


class Line(NamedTuple):
    """One line of a body."""

    number: int
    """1 for the first line; lines of white space count, and are left out."""
    text: bytes | None
    """None: the line is longer than the limit."""


class LineSplitter:
    """Collects pieces of a body, and holds no more of a line than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._unfinished = bytearray()
        self._too_long = False
        self._number = 1

    @property
    def size(self) -> int:
        """Bytes that are held of a line without its end."""
        return len(self._unfinished)

    def feed(self, piece: bytes) -> list[Line]:
        """Return the lines that end in this piece."""
        *ends, rest = piece.split(b"\n")
        lines: list[Line] = []
        for end in ends:
            if not end and not self._unfinished and not self._too_long:  # a body can consist of such lines
                self._number += 1
                continue
            self._add(end)
            lines += self.end()
        self._add(rest)
        return lines

    def end(self) -> list[Line]:
        """End the line that was begun, which needs no line feed at the end of the body. Returns it, or nothing."""
        number, self._number = self._number, self._number + 1
        text, self._unfinished = bytes(self._unfinished), bytearray()
        if self._too_long:
            self._too_long = False
            return [Line(number, None)]
        return [Line(number, text)] if text.strip() else []

    def _add(self, part: bytes) -> None:
        if self._too_long or len(self._unfinished) + len(part) > self._limit:
            self._too_long = True
            self._unfinished.clear()
        else:
            self._unfinished += part
