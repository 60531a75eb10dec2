"""Sends messages in batches: in order, at a rate, again after an outage."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from bridge.client import Client, ProduceResult
from bridge.client.request_sender import is_transient, retry_delay
from bridge.errors import BodyInvalid, BodyTooLarge, BridgeError, QuotaExceeded
from bridge.message import Message

BATCH_MESSAGES: Final = 500
BATCH_BYTES: Final = 1 << 20
"""A batch ends at either, well inside the limits of a bridge with default settings."""
PATIENCE: Final = 60.0
"""Seconds of last_error without a single message stored after which it gives up."""
_PARTS: Final = 4
"""Under a rate, batches a second: more would be smoother and slower."""

Result = ProduceResult | BridgeError


class Sender:
    """Sends through one client; `refused` is called for each message that the bridge will never take."""

    def __init__(self, client: Client, rate: float | None, refused: Callable[[Message, BridgeError], None]) -> None:
        self._client = client
        self._rate = rate
        self._refused = refused
        self._start = time.monotonic()
        self._sent = 0
        self.stored = 0

    @property
    def batch(self) -> int:
        """Messages of one batch, at most."""
        return BATCH_MESSAGES if self._rate is None else max(1, min(BATCH_MESSAGES, int(self._rate / _PARTS)))

    async def send(self, batch: Sequence[Message]) -> None:
        """Return when each message is stored or refused. Raises what does not pass, or has not within `PATIENCE`."""
        if self._rate is not None:
            await asyncio.sleep(self._start + self._sent / self._rate - time.monotonic())
            self._sent += len(batch)
        await self._send(batch)

    async def _send(self, batch: Sequence[Message]) -> None:
        todo, failures, failing_since = batch, 0, time.monotonic()
        while todo:
            try:
                results: Sequence[Result] = await self._client.produce_batch(todo)
            except (BodyTooLarge, BodyInvalid) as error:
                if len(todo) > 1:
                    for message in todo:
                        await self._send([message])
                    return
                results = [error]
            except BridgeError as error:
                if not _passes(error):
                    raise
                results = [error] * len(todo)
            rest = again(todo, results)
            self._note(todo, results, rest)
            if len(rest) < len(todo):
                failures, failing_since = 0, time.monotonic()
            if rest:
                last_error = next(result for result in results if isinstance(result, BridgeError) and _passes(result))
                if time.monotonic() - failing_since > PATIENCE:
                    raise last_error
                failures += 1
                await asyncio.sleep(retry_delay(failures, random.random(), last_error.retry_after))  # noqa: S311 - no secret
            todo = [todo[place] for place in rest]

    def _note(self, batch: Sequence[Message], results: Sequence[Result], rest: Sequence[int]) -> None:
        for place, (message, result) in enumerate(zip(batch, results, strict=True)):
            if place in rest:
                continue
            if isinstance(result, BridgeError):
                self._refused(message, result)
            else:
                self.stored += 1


def again(batch: Sequence[Message], results: Sequence[Result]) -> list[int]:
    """Return the places of what has to be sent again: what may succeed later, and what of its key came after it."""
    rest, held = [], set()
    for place, (message, result) in enumerate(zip(batch, results, strict=True)):
        key = message.message_key
        if key in held or (isinstance(result, BridgeError) and _passes(result)):
            rest.append(place)
            if key is not None:
                held.add(key)
    return rest


def _passes(error: BridgeError) -> bool:
    return is_transient(error) or isinstance(error, QuotaExceeded)
