"""What the broker says when a declaration does not fit what is there: it names one difference each time. Pure."""

import re
from typing import Final, NamedTuple

from bridge.migrate.rabbitmq.facts import Value

_DIFFERENCE: Final = re.compile(
    r"inequivalent arg '(?P<name>[^']+)' for (?:queue|exchange) .*: received .* but current is"
    r" (?:none|the value '(?P<typed>.*)' of type '(?P<type>\w+)'|'(?P<plain>.*)')$",
    re.DOTALL,
)
_NUMBER: Final = re.compile(r"-?\d+")
_TEXTS: Final = frozenset(
    {
        *("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-overflow"),
        *("x-queue-type", "x-queue-mode", "alternate-exchange", "type"),
    }
)
"""Whose values are text, also where they look like numbers and RabbitMQ does not say what they are."""


class Difference(NamedTuple):
    """One thing that was declared otherwise."""

    name: str
    """An argument's, or durable, auto_delete, internal, type."""
    current: Value


def difference(text: str) -> Difference | None:
    """Return what is there; None for a sentence that is another one, or was cut (a short string has 255 bytes)."""
    found = _DIFFERENCE.search(text)
    if found is None:
        return None
    said = found["typed"] if found["plain"] is None else found["plain"]
    is_text = found["type"] == "longstr" or found["name"] in _TEXTS
    return Difference(found["name"], said if is_text else _value(said))


def _value(said: str | None) -> Value:
    if said in {"true", "false"}:
        return said == "true"
    return int(said) if said is not None and _NUMBER.fullmatch(said) else said
