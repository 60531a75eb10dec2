"""Names of destinations and consumer groups, and of the dead-letter destination that belongs to a destination."""

import hashlib
from functools import lru_cache
from typing import Final, NamedTuple, Self

from adapters.base import DEAD_LETTER_SUFFIX
from bridge.errors import DestinationInvalid

NAME_MAX: Final = 249
"""Characters; Kafka's limit for a topic."""
INTERNAL_PREFIXES: Final = ("__", "amq.", "oms.")
"""Reserved by Kafka, by RabbitMQ, and by the bridge."""

DEAD_LETTER_PROPERTIES: Final = "oms-dead-letter-"
"""Prefix of the properties that only the bridge gives a dead letter."""

_ALLOWED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


class SubscriptionKey(NamedTuple):
    """Identifies a consumer group: (destination, consumerId)."""

    source: str
    group: str

    @classmethod
    def checked(cls, source: str, group: str) -> Self:
        """Return the key of a group that a client names. Raises `DestinationInvalid`."""
        return cls(check_name(source, "x-oms-source"), check_name(group, "x-oms-consumerid"))


@lru_cache(maxsize=4096)
def check_name(name: str, header: str) -> str:
    """Return the name, or raise `DestinationInvalid`: `[A-Za-z0-9._-]{1,249}`, not `.`/`..`, no internal prefix.

    Valid names are cached, because the same few names come with every message.
    """
    if not 0 < len(name) <= NAME_MAX:
        raise DestinationInvalid(f"{header}: a name has 1 to {NAME_MAX} characters; this one has {len(name)}.")
    if not _ALLOWED.issuperset(name):
        raise DestinationInvalid(f"{header}: {name[:80]!a} has a character other than A-Z, a-z, 0-9, `.`, `_` and `-`.")
    if name in {".", ".."}:
        raise DestinationInvalid(f"{header}: {name!r} is not a name.")
    if name.startswith(INTERNAL_PREFIXES):
        raise DestinationInvalid(f"{header}: names that start with {', '.join(INTERNAL_PREFIXES)} are internal.")
    return name


@lru_cache(maxsize=4096)
def check_destination(name: str) -> None:
    """Raise `DestinationInvalid` for a name that clients may not produce to."""
    check_name(name, "x-oms-h-destination")
    if is_dead_letter(name):
        raise DestinationInvalid(
            f"x-oms-h-destination: only the bridge writes to destinations that end with {DEAD_LETTER_SUFFIX}."
        )


def dead_letter_of(destination: str) -> str:
    """Return the name of a destination's dead-letter destination; a name that would be too long is cut and hashed."""
    if len(destination) + len(DEAD_LETTER_SUFFIX) <= NAME_MAX:
        return destination + DEAD_LETTER_SUFFIX
    digest = hashlib.sha256(destination.encode()).hexdigest()[:12]
    return f"{destination[: NAME_MAX - len(DEAD_LETTER_SUFFIX) - len(digest) - 1]}.{digest}{DEAD_LETTER_SUFFIX}"


def is_dead_letter_property(name: str) -> bool:
    """Return whether a property says why a message is a dead letter."""
    return name.startswith(DEAD_LETTER_PROPERTIES)


def is_dead_letter(destination: str) -> bool:
    """Return whether the destination holds dead letters: those are redelivered without limit."""
    return destination.endswith(DEAD_LETTER_SUFFIX)
