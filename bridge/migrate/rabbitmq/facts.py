"""What was seen of a queue, and of the exchange in front of it."""

from collections.abc import Mapping
from typing import NamedTuple

from adapters.rabbitmq.options import Existing

Value = str | int | bool | None
"""Of an argument; None: it was declared without."""


class Traits(NamedTuple):
    """How a queue or an exchange was declared."""

    durable: bool
    auto_delete: bool
    internal: bool
    """Of an exchange: nobody publishes to it."""
    kind: str | None
    """Of an exchange; None: it is not told."""
    arguments: Mapping[str, Value]
    """Those that could be found out."""


class Queue(NamedTuple):
    """Everything that the judges look at."""

    name: str
    exclusive: bool
    """Whether it is another connection's own: then nothing else is told."""
    messages: int
    """Those that are with nobody."""
    consumers: int
    traits: Traits | None
    """None: the user may not ask."""


class Exchange(NamedTuple):
    """What the queue's messages are published to, as the settings name it."""

    name: str
    there: bool
    traits: Traits | None


class Entry(NamedTuple):
    """What the file of `destinations=` says."""

    destination: str
    existing: Existing
