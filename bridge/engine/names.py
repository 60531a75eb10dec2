"""Names of destinations and consumer groups."""

import hashlib
from functools import lru_cache
from typing import Final

from bridge.errors import DestinationInvalid

NAME_MAX: Final = 249
"""Kafka's limit for a topic."""
INTERNAL_PREFIXES: Final = ("__", "amq.", "oms.")
"""Kafka's and RabbitMQ's own names, and ours."""
DEAD_LETTER_SUFFIX: Final = ".dlq"

_ALLOWED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


@lru_cache(maxsize=4096)
def check_name(name: str, header: str) -> str:
    """Return the name, or raise `DestinationInvalid`: `[A-Za-z0-9._-]{1,249}`, not `.`/`..`, no internal prefix.

    Cached, failures excepted: the same few names come with every message.
    """
    if not 0 < len(name) <= NAME_MAX:
        raise DestinationInvalid(f"{header}: a name has 1 to {NAME_MAX} characters; this one has {len(name)}.")
    if not _ALLOWED.issuperset(name):
        raise DestinationInvalid(f"{header}: {name[:80]!a} holds a character outside A-Z a-z 0-9 . _ -")
    if name in {".", ".."}:
        raise DestinationInvalid(f"{header}: {name!r} is not a name.")
    if name.startswith(INTERNAL_PREFIXES):
        raise DestinationInvalid(f"{header}: names that start with {', '.join(INTERNAL_PREFIXES)} are internal.")
    return name


def dead_letter_of(destination: str) -> str:
    """Return where the dead letters of a destination go; a name that would grow too long is cut and hashed."""
    if len(destination) + len(DEAD_LETTER_SUFFIX) <= NAME_MAX:
        return destination + DEAD_LETTER_SUFFIX
    digest = hashlib.sha256(destination.encode()).hexdigest()[:12]
    return f"{destination[: NAME_MAX - len(DEAD_LETTER_SUFFIX) - len(digest) - 1]}.{digest}{DEAD_LETTER_SUFFIX}"


def is_dead_letter(destination: str) -> bool:
    """Whether the destination holds dead letters: those are redelivered for ever, not buried a second time."""
    return destination.endswith(DEAD_LETTER_SUFFIX)
