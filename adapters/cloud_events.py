"""The option `format=cloudevents`: messages as CloudEvents in the headers of a broker, in binary mode.

Kafka has `ce_<attribute>` (the Kafka protocol binding), RabbitMQ `ce-<attribute>` (that of Knative and the SDKs for
AMQP 0-9-1). Fields keep their own headers beside them. Headers are read alike with and without the option. Pure.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, get_args

from adapters.native_headers import Unmapped
from adapters.url_options import one_of
from bridge.cloudevents import (
    DEFAULT_SOURCE,
    DEFAULT_TYPE,
    FIELD_NAMES,
    OTHER_FIELDS,
    OTHER_PROPERTIES,
    from_attributes,
    is_attribute,
    to_attributes,
)
from bridge.errors import BridgeError
from bridge.message import FIELD_INDEX, Message

Format = Literal["messages", "cloudevents"]
parse_format: Final = one_of(*get_args(Format))
"""Parses the option's value."""

_DESTINATION: Final = FIELD_INDEX["destination"]
_ELSEWHERE: Final = {"datacontenttype", OTHER_FIELDS, OTHER_PROPERTIES} | {
    name for name in FIELD_NAMES if name.startswith("oms")
}
"""Attributes that are in headers of the bridge: no event needs them."""


class EventHeaders:
    """The headers of an event, which include those of properties whose names are attributes."""

    def __init__(self, prefix: str, header_of: Callable[[str], str]) -> None:
        """`header_of` returns the header of any other property."""
        self._prefix = prefix
        self._header_of = header_of

    def headers(self, message: Message) -> Iterator[tuple[str, str]]:
        """Yield name and value of each header."""
        for name, value in to_attributes(message).items():
            if name == "id":
                yield self._prefix + name, message.message_id or ""  # unchanged: a bridge reads it back
            elif name not in _ELSEWHERE:
                yield self._prefix + name, str(value)
        for name, text in message.properties.items():
            if not is_attribute(name, text):
                yield self._header_of(name), text


PropertyHeaders = Callable[[str], str] | EventHeaders
"""Names the headers of properties."""


def property_headers(message: Message, named: PropertyHeaders) -> Iterator[tuple[str, str]]:
    """Yield name and value of the headers of properties, and of the event if the message is written as one."""
    if isinstance(named, EventHeaders):
        return named.headers(message)
    return ((named(name), text) for name, text in message.properties.items())


def read_event(
    unmapped: Unmapped, values: list[Any], properties: dict[str, str], prefix: str, *, native: bool
) -> Unmapped:
    """Move the attributes of an event to the fields and properties that are not set; return the other headers.

    `native`: no bridge wrote it, so its fields are read, too. All headers stay if they are no valid event.
    """
    try:
        attributes = {name.removeprefix(prefix): raw.decode() for name, raw in unmapped if name.startswith(prefix)}
        if "specversion" not in attributes:
            return unmapped
        fields, found = from_attributes(attributes) if native else ({}, _own_properties(attributes))
    except (BridgeError, UnicodeDecodeError):
        return unmapped
    for field, value in fields.items():
        place = FIELD_INDEX[field]
        values[place] = value if values[place] is None else values[place]
    for default in (("source", DEFAULT_SOURCE + values[_DESTINATION]), ("type", DEFAULT_TYPE)):
        if default in found.items():
            del found[default[0]]  # written for a message that has no such property
    properties |= found | properties
    return [(name, raw) for name, raw in unmapped if not name.startswith(prefix)]


def _own_properties(attributes: dict[str, str]) -> dict[str, str]:
    """Return the properties of a message that a bridge wrote; its fields have headers of their own."""
    return {name: text for name, text in attributes.items() if is_attribute(name, text)}
