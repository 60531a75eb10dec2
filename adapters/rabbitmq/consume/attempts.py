"""The note of a partition: how often what is handed out, and not settled, has been handed out. Pure.

    {"by": "5f0c…", "counts": {"1": ["id", "id"], "3": ["id"]}}

The next holder of the partition reads it. An id that is not in it was not handed out.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

_COUNT_MAX: Final = 2**31 - 1
_DIGITS_MAX: Final = 10


class Note(NamedTuple):
    """What is known of the deliveries of one partition."""

    by: str
    """Who wrote it: a subscription's own token."""
    attempts: Mapping[str, int]
    """By message id."""


def encode(note: Note) -> bytes:
    """Write a note."""
    counts: dict[int, list[str]] = {}
    for identity, count in note.attempts.items():
        counts.setdefault(count, []).append(identity)
    return json.dumps({"by": note.by, "counts": counts}, separators=(",", ":")).encode()


def decode(body: bytes) -> Note | None:
    """Read a note; None: another program wrote it."""
    try:
        held = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(held, dict):
        return None
    by, counts = held.get("by"), held.get("counts")
    if not isinstance(by, str) or not isinstance(counts, dict):
        return None
    attempts: dict[str, int] = {}
    for digits, identities in counts.items():
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX and isinstance(identities, list)):
            return None
        if not all(isinstance(identity, str) for identity in identities):
            return None
        attempts.update(dict.fromkeys(identities, min(int(digits), _COUNT_MAX)))
    return Note(by, attempts)
