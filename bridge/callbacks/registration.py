"""What a client asked for, how it is kept, and what became of it."""

import json
from collections import deque
from typing import Final, NamedTuple

from bridge.engine.engine import GroupName

FAILURES_KEPT: Final = 10
_PREFIX: Final = "callback/"


class Registration(NamedTuple):
    """The messages of one group are POSTed to one URL."""

    name: GroupName
    url: str
    credit: int
    """POSTs in flight at once."""
    gone: bool = False
    """The endpoint has answered 410."""

    def encode(self) -> str:
        """Write what is kept under the key."""
        return json.dumps({"url": self.url, "credit": self.credit, "gone": self.gone})


class Failure(NamedTuple):
    """One delivery that the endpoint did not take."""

    time: int
    """ms since 1970."""
    message_id: str
    attempt: int
    """The message's deliveryCount."""
    status: int | None
    """None: there was no answer."""
    reason: str


class History:
    """What became of a group's deliveries since the bridge started; a new URL goes on with it."""

    def __init__(self) -> None:
        self.delivered = 0
        self.failed = 0
        self.failures: deque[Failure] = deque(maxlen=FAILURES_KEPT)


def key_of(name: GroupName) -> str:
    """Under which a group's registration is kept; neither name can hold a slash."""
    return f"{_PREFIX}{name.source}/{name.group}"


def decode(key: str, value: str) -> Registration | None:
    """Read a note back; None for one that is no registration. Raises `ValueError` for one that cannot be read."""
    if not key.startswith(_PREFIX):
        return None
    source, _, group = key.removeprefix(_PREFIX).partition("/")
    try:
        kept = json.loads(value)
        return Registration(GroupName(source, group), str(kept["url"]), int(kept["credit"]), gone=bool(kept["gone"]))
    except (LookupError, TypeError) as error:
        raise ValueError(f"{key} is kept without its {error}") from None
