"""The option `properties`: the names of headers for the properties of clients. The same for all brokers.

With `prefixed`, the default, a property `region` is the header `oms_p_region`; with `plain` it is the header `region`.
Headers are read alike with both, so bridges with different values can share a destination. Pure.
"""

from collections.abc import Collection
from typing import Final, Literal, get_args

from adapters.field_headers import BROKER_FIELD_PREFIX, INTERNAL_PREFIX, PROPERTY_PREFIX
from adapters.url_options import one_of

PropertyNames = Literal["prefixed", "plain"]
parse_property_names: Final = one_of(*get_args(PropertyNames))
"""Parses the option's value."""

_PREFIXES: Final = (BROKER_FIELD_PREFIX, PROPERTY_PREFIX, INTERNAL_PREFIX)


def prefixed_header(name: str) -> str:
    """Return the header of a property with `properties=prefixed`."""
    return PROPERTY_PREFIX + name


class PlainNames:
    """The headers of properties with `properties=plain`."""

    def __init__(self, reserved: Collection[str]) -> None:
        """`reserved` are the headers that the bridge or the broker itself uses; the prefixes `oms_` are known."""
        self._reserved = frozenset(reserved)

    def is_reserved(self, name: str) -> bool:
        """Return whether a header of this name would not be read as a property."""
        return name in self._reserved or name.startswith(_PREFIXES)

    def header(self, name: str) -> str:
        """Return the header of a property. A reserved name keeps the prefix: a dead letter may have one."""
        return PROPERTY_PREFIX + name if self.is_reserved(name) else name

    def refusal(self, name: str) -> str | None:
        """Return why a client may not use a name for a property; None: it may. See `Features.property_refusal`."""
        if not self.is_reserved(name):
            return None
        return (
            f"the property {name} would collide with a header of the bridge or the broker (properties=plain); allowed"
            f" are other names than {', '.join((*(f'{prefix}…' for prefix in _PREFIXES), *sorted(self._reserved)))}."
        )
