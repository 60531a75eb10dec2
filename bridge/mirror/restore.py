"""`mirror restore`: sends rows of the mirror through a bridge, in batches, in order, at a rate, again after an outage.

Delivery is at least once: an interrupted run sends the messages since its last write of the progress file again.
"""

import asyncio
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from bridge.client import Client, ProduceResult
from bridge.client.request_sender import is_transient, retry_delay
from bridge.errors import BodyInvalid, BodyTooLarge, BridgeError, CannotStart, QuotaExceeded
from bridge.message import Message
from bridge.mirror.restore_rows import Row, to_message


class State:
    """The next offset of every log, kept in `path`. None: kept nowhere.

    `of`: the selection, as JSON can hold it. Raises `CannotStart` for the file of another restore.
    """

    def __init__(self, path: Path | None, of: Mapping[str, object]) -> None:
        self._path = path
        self._of = json.loads(json.dumps(of))
        self.next: dict[str, int] = {}
        if path is not None and path.exists():
            self.next = self._read(path)

    def reached(self, log: str, offset: int) -> None:
        """Note that a message is done."""
        self.next[log] = offset + 1

    def keep(self) -> None:
        """Replace the file at once: a crash leaves the old one. Raises `CannotStart` if it cannot be written."""
        if self._path is None:
            return
        temporary = self._path.with_name(self._path.name + ".tmp")
        try:
            with temporary.open("w", encoding="utf-8") as file:
                json.dump({"version": 1, "of": self._of, "next": self.next}, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            raise CannotStart(f"state: {self._path} cannot be written: {error.strerror}.") from None

    def _read(self, path: Path) -> dict[str, int]:
        try:
            kept = json.loads(path.read_text("utf-8"))
            of, reached = kept["of"], {str(log): int(offset) for log, offset in kept["next"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CannotStart(f"state: {path} is not the state of a restore.") from None
        if of != self._of:
            raise CannotStart(f"state: {path} belongs to another restore: {json.dumps(of)}.")
        return reached


BATCH_MESSAGES: Final = 500
BATCH_BYTES: Final = 1 << 20
"""A batch ends at either, well inside the limits of a bridge with default settings."""
GIVE_UP_AFTER: Final = 60.0
"""Seconds of last_error without a single message stored after which it gives up."""
_BATCHES_PER_SECOND: Final = 4
"""Under a rate, batches a second: more would be smoother and slower."""

Result = ProduceResult | BridgeError


@dataclass(slots=True)
class Outcome:
    """What became of the messages."""

    stored: int = 0
    expired: int = 0
    """Not sent."""
    refused: list[tuple[Message, BridgeError]] = field(default_factory=list)


class Sender:
    """Sends through one client, and counts in `outcome`."""

    def __init__(self, client: Client, rate: float | None, outcome: Outcome) -> None:
        self._client = client
        self._rate = rate
        self._outcome = outcome
        self._start = time.monotonic()
        self._sent = 0
        self.batch = BATCH_MESSAGES if rate is None else max(1, min(BATCH_MESSAGES, int(rate / _BATCHES_PER_SECOND)))
        """Messages of one batch, at most."""

    async def send(self, batch: Sequence[Message]) -> None:
        """Return when each message is stored or refused. Raises a lasting error, or one that lasts `GIVE_UP_AFTER`."""
        if self._rate is not None:
            await asyncio.sleep(self._start + self._sent / self._rate - time.monotonic())
            self._sent += len(batch)
        await self._send(batch)

    async def _send(self, batch: Sequence[Message]) -> None:
        pending, failures, failing_since = batch, 0, time.monotonic()
        while pending:
            try:
                results: Sequence[Result] = await self._client.produce_batch(pending)
            except (BodyTooLarge, BodyInvalid) as error:
                if len(pending) > 1:
                    for message in pending:
                        await self._send([message])
                    return
                results = [error]
            except BridgeError as error:
                if not _may_succeed_later(error):
                    raise
                results = [error] * len(pending)
            rest = to_resend(pending, results)
            self._record(pending, results, rest)
            if len(rest) < len(pending):
                failures, failing_since = 0, time.monotonic()
            if rest:
                last_error = next(
                    result for result in results if isinstance(result, BridgeError) and _may_succeed_later(result)
                )
                if time.monotonic() - failing_since > GIVE_UP_AFTER:
                    raise last_error
                failures += 1
                await asyncio.sleep(retry_delay(failures, random.random(), last_error.retry_after))  # noqa: S311 - no secret
            pending = [pending[place] for place in rest]

    def _record(self, batch: Sequence[Message], results: Sequence[Result], rest: Sequence[int]) -> None:
        for place, (message, result) in enumerate(zip(batch, results, strict=True)):
            if place in rest:
                continue
            if isinstance(result, BridgeError):
                self._outcome.refused.append((message, result))
            else:
                self._outcome.stored += 1


def to_resend(batch: Sequence[Message], results: Sequence[Result]) -> list[int]:
    """Return the indexes to send again: of transient errors, and of later messages with the same key."""
    rest, held = [], set()
    for place, (message, result) in enumerate(zip(batch, results, strict=True)):
        key = message.message_key
        if key in held or (isinstance(result, BridgeError) and _may_succeed_later(result)):
            rest.append(place)
            if key is not None:
                held.add(key)
    return rest


def _may_succeed_later(error: BridgeError) -> bool:
    return is_transient(error) or isinstance(error, QuotaExceeded)


class RestoreOptions(NamedTuple):
    """How to restore."""

    destination: str | None = None
    """Another one than the messages' own."""
    expired: bool = False
    """Also what has expired, without its expireTime."""
    rate: float | None = None
    """At most so many messages a second (> 0)."""


async def restore(  # noqa: PLR0913, PLR0917 - the input, the options and the callbacks
    client: Client,
    rows: Iterator[Row],
    state: State,
    options: RestoreOptions,
    outcome: Outcome,
    advance: Callable[[int], None],
) -> None:
    """Send everything. `advance` gets the number of rows of each batch; `outcome` is complete also when this raises."""
    state.keep()  # before anything is sent: without its file the next run would send everything again
    sender = Sender(client, options.rate, outcome)
    while chunk := await asyncio.to_thread(_take, rows, sender.batch):
        now = time.time_ns() // 1_000_000
        there = [to_message(row, destination=options.destination, expired=options.expired, now=now) for row in chunk]
        messages = [message for message in there if message is not None]
        await sender.send(messages)
        outcome.expired += len(chunk) - len(messages)
        for row in chunk:
            state.reached(row.log, row.offset)
        state.keep()
        advance(len(chunk))


def _take(rows: Iterator[Row], most: int) -> list[Row]:
    taken: list[Row] = []
    size = 0
    while len(taken) < most and size < BATCH_BYTES and (row := next(rows, None)) is not None:
        taken.append(row)
        size += len(row.message.body)
    return taken
