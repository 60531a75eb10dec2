"""The types of a message that a program produces. Python does not check them, and some wrong ones could be sent."""

from collections.abc import Mapping
from typing import Final

from bridge.message import FIELDS, Message

_TYPES: Final[tuple[tuple[str, type], ...]] = (
    *((field.attribute, str if field.maximum is None else int) for field in FIELDS),
    *((name, str) for name in ("content_type", "traceparent", "tracestate")),
)


def check_types(message: Message) -> None:
    """Raise `TypeError`, which names the attribute and what it accepts, if a message has a value of another type."""
    if not isinstance(message.body, bytes | bytearray | memoryview):
        raise TypeError(
            f"Message.body must be bytes, not {_name(message.body)}; encode text with .encode(), and other values with"
            " json.dumps(value).encode()."
        )
    for attribute, kind in _TYPES:
        value = getattr(message, attribute)
        if value is None and attribute != "destination":
            continue
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(f"Message.{attribute} must be {kind.__name__}, not {_name(value)}.")
    if not isinstance(message.properties, Mapping):
        raise TypeError(f"Message.properties must be a mapping of str to str, not {_name(message.properties)}.")
    for name, value in message.properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"Message.properties must map str to str, not {_name(name)} to {_name(value)}.")


def _name(value: object) -> str:
    return "None" if value is None else type(value).__name__
