"""The results of a produce. Pure."""

import asyncio
from typing import NamedTuple

from adapters.base import Stored
from bridge.engine.field_support import Applied
from bridge.errors import BridgeError


class Produced(NamedTuple):
    """The result of producing one message: what the response says about it."""

    message_id: str
    store_timestamp: int
    store_host: str
    stored: Stored
    applied: Applied
    duplicate: bool = False
    """Whether this is the result of an earlier message of the same name, and nothing was stored for this one."""
    transaction: str | None = None
    """The id of its transaction; `store_timestamp` is 0 while that is open. None: it has none."""


class WaitingMessage(NamedTuple):
    """A message that the backend has not stored yet; without its body, see `Batch.take`."""

    message_id: str
    store_timestamp: int
    applied: Applied
    future: asyncio.Future[Stored]
    duplicate: bool = False
    """As `Produced.duplicate`."""


Result = Produced | BridgeError
Outcome = Produced | WaitingMessage | Exception
"""What is known of a message once it is passed to the backend."""
