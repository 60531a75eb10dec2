"""One restore: rows in, messages out, and what became of them."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from bridge.client import Client
from bridge.errors import BridgeError
from bridge.message import Message
from bridge.mirror.restore.sender import BATCH_BYTES, Sender
from bridge.mirror.restore.state import State
from bridge.mirror.restore.to_message import Row, to_message


class Wishes(NamedTuple):
    """How to restore."""

    destination: str | None = None
    """Another one than the messages' own."""
    expired: bool = False
    """Also what has expired, without its expireTime."""
    rate: float | None = None
    """At most so many messages a second (> 0)."""


@dataclass(slots=True)
class Done:
    """What became of the messages."""

    stored: int = 0
    expired: int = 0
    """Not sent."""
    refused: list[tuple[Message, BridgeError]] = field(default_factory=list)


async def restore(  # noqa: PLR0913, PLR0917 - the input, the options and the callbacks
    client: Client, rows: Iterator[Row], state: State, wishes: Wishes, done: Done, moved: Callable[[int], None]
) -> None:
    """Send everything; `moved` is called for rows that are done, `done` holds what was done also when this raises."""
    sender = Sender(client, wishes.rate, lambda message, error: done.refused.append((message, error)))
    while chunk := await asyncio.to_thread(_take, rows, sender.batch):
        now = time.time_ns() // 1_000_000
        there = [to_message(row, destination=wishes.destination, expired=wishes.expired, now=now) for row in chunk]
        messages = [message for message in there if message is not None]
        try:
            await sender.send(messages)
        finally:
            done.stored = sender.stored
        done.expired += len(chunk) - len(messages)
        for row in chunk:
            state.reached(row.log, row.offset)
        state.keep()
        moved(len(chunk))


def _take(rows: Iterator[Row], most: int) -> list[Row]:
    taken: list[Row] = []
    size = 0
    while len(taken) < most and size < BATCH_BYTES and (row := next(rows, None)) is not None:
        taken.append(row)
        size += len(row.message.body)
    return taken
