"""Options of the RabbitMQ backend, and the file of `destinations=`.

The URL: `amqp://user:password@host:5672/vhost?partitions=8`, `amqps://` with TLS.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from adapters.amqp.settings import Security
from adapters.cloud_events import Format
from adapters.plain_properties import PropertyNames


class Existing(NamedTuple):
    """What the operator says of one destination: names that exist already are used as they are, never changed."""

    exchange: str | None = None
    """Publish there in place of an exchange of the destination's name; groups are bound to it."""
    routing_key: str | None = None
    """What is published with, and what groups are bound with."""
    queue: str | None = None
    """Consume this queue as it is: every group of the destination shares it."""
    log: bool | None = None
    """Whether the destination keeps a log for groups that come late; None: as `Options.log` says."""


class Options(NamedTuple):
    """Options of a RabbitMQ backend. Times in milliseconds, sizes in bytes."""

    servers: tuple[tuple[str, int], ...]
    """Host and port of the nodes of one cluster: the first that answers is used."""
    vhost: str = "/"
    security: Security = Security()
    partitions: int = 8
    """Of a destination created from now on."""
    create: bool = True
    """Whether destinations are created on first use."""
    log: bool = True
    """Whether a new destination keeps a log, a stream, for groups that come late."""
    log_bytes: int = 1 << 30
    """How large that log grows before its oldest messages go."""
    prefetch: int = 256
    """Messages that are on their way to, or wait in, this bridge of one partition of one group."""
    properties: PropertyNames = "prefixed"
    """Whether the headers of properties have the prefix `oms_p_`."""
    instance: str | None = None
    """A name that stays the same over restarts of this bridge, and that no other bridge has."""
    prefix: str = "oms."
    """Of the names of the bridge's own exchanges, queues and streams: those that share it share those."""
    heartbeat: int = 10_000
    """Without a sign of life of the broker for so long and 5 s more, or up to twice that, a connection is given up."""
    destinations: Mapping[str, Existing] = {}
    """What the file of `destinations=` says, by destination."""
    format: Format = "messages"
    """Whether messages are CloudEvents to native programs, too."""


UNSENT_TIMEOUT: Final = 30_000
"""How long a message waits for the broker, unless the engine sets another time; then it is not stored."""

_NAME_MAX: Final = 255
_EXAMPLE: Final = "orders: {queue: legacy.orders}"


def read_existing(text: str) -> dict[str, Existing]:
    """Return what the YAML file of that path says, by destination. Raises `ValueError` with what is allowed."""
    try:
        held = yaml.safe_load(Path(text).read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"the file cannot be read ({error.strerror})") from None
    except (ValueError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"the file is not YAML{'' if mark is None else f' (line {mark.line + 1})'}") from None
    if not isinstance(held, dict) or not all(isinstance(name, str) and name for name in held):
        raise ValueError(f"the file must map names of destinations, as in {_EXAMPLE}")
    return {name: _existing(name, said) for name, said in held.items()}


def _existing(destination: str, said: Any) -> Existing:  # noqa: ANN401 - whatever the YAML holds
    if not isinstance(said, dict) or not said or not set(said) <= set(Existing._fields):
        raise ValueError(f"{destination} must have one or more of {', '.join(Existing._fields)}, as in {_EXAMPLE}")
    for field, value in said.items():
        if field == "log":
            if not isinstance(value, bool):
                raise ValueError(f"{destination}: log must be true or false")
        elif not isinstance(value, str) or not _fits(value, empty=field == "routing_key"):
            raise ValueError(f"{destination}: {field} must have 1 to {_NAME_MAX} bytes of text, in quotes if needed")
    existing = Existing(**said)
    if existing.routing_key is not None and existing.exchange is None:
        raise ValueError(f"{destination}: routing_key needs exchange")
    if existing.queue is not None and existing.log:
        raise ValueError(f"{destination}: an existing queue has no log")
    return existing


def _fits(text: str, *, empty: bool) -> bool:
    return (empty or bool(text)) and len(text.encode()) <= _NAME_MAX and (not text or text.isprintable())
