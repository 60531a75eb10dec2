"""The media types that an `accept` header asks for (RFC 9110 12.5.1)."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from bridge.errors import NotAcceptable
from bridge.wire.header_text import printable

EVENTS: Final = "; format=cloudevents"
"""The parameter of a media type whose messages are CloudEvents."""

_WEIGHT: Final = re.compile(r"0(\.\d{0,3})?|\.\d{1,3}|1(\.0{0,3})?", re.ASCII)
"""RFC 9110 12.4.2, and `.2`: by default, Java's `HttpURLConnection` sends `*/*; q=.2`."""


def choose(accept: bytes | None, offered: Sequence[str], subject: str) -> str:
    """Return the offered media type that `accept` prefers; the first one among equals.

    Raises `NotAcceptable`; `subject` begins its sentence.
    """
    given = weights(accept) if accept is not None else {"*/*": 1.0}
    best = max(offered, key=lambda name: _quality(name, given))
    if not _quality(best, given):
        shown = printable(accept or b"")
        raise NotAcceptable(f"accept: {subject} is {', '.join(offered)}; {shown} accepts none of these.")
    return best


def weights(accept: bytes) -> dict[str, float]:
    """Return the weight of each media type or range, in lower case. Of its parameters, only `format` is kept."""
    ranges: dict[str, float] = {}
    for part in accept.decode("latin-1").lower().split(","):
        name, *options = (piece.strip() for piece in part.split(";"))
        weight = next((option[2:] for option in options if option.startswith("q=")), "1")
        form = "".join(f"; {option}" for option in options if option.startswith("format="))
        ranges[name + form] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    return ranges


def _quality(name: str, given: Mapping[str, float]) -> float:
    """Return the weight of the most specific range that matches; for CloudEvents it has to name them."""
    family = name.partition("/")[0]
    ranges = (name,) if name.endswith(EVENTS) else (name, f"{family}/*", "*/*")
    return next((given[r] for r in ranges if r in given), 0.0)
