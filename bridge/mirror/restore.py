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

import duckdb

from bridge.client import Client, ProduceResult
from bridge.client.request_sender import is_transient, retry_delay
from bridge.engine.destination_names import is_dead_letter_property
from bridge.errors import BodyInvalid, BodyTooLarge, BridgeError, CannotStart, QuotaExceeded
from bridge.message import Message
from bridge.mirror.query import AREAS, one_of
from bridge.mirror.schema import MESSAGE, TIMES, Area
from bridge.mirror.table import MESSAGES

RESTORED_FROM: Final = "oms-restored-from"
"""Property: the place in the mirror, `<log>/<offset>`."""
RESTORED_EXPIRE_TIME: Final = "oms-restored-expiretime"
"""Property: the expireTime of a message that had expired and was restored all the same."""

_FIELDS: Final = [column.name for column in MESSAGE]


class Row(NamedTuple):
    """A message, and where it lay."""

    message: Message
    log: str
    offset: int


def to_row(values: Mapping[str, object]) -> Row:
    """Read a row: times in ms since 1970; an absent body is an empty one, and so is a property without a value."""
    fields = {name: values[name] for name in _FIELDS}
    fields["body"] = bytes(values["body"] or b"")  # type: ignore[call-overload]  # a blob
    properties: Mapping[str, str | None] = values["properties"] or {}  # type: ignore[assignment]  # a map of texts
    fields["properties"] = {name: text or "" for name, text in properties.items()}
    message = Message(str(values["destination"]), **fields)  # type: ignore[arg-type]  # as the schema has them
    return Row(message, str(values["log"]), int(values["offset"]))  # type: ignore[call-overload]  # a bigint


def to_message(row: Row, *, destination: str | None, expired: bool, now: int) -> Message | None:
    """Return the message to send; None: its time is over.

    `destination`: another one than its own. `expired`: send also what has expired, without its expireTime, which a
    bridge would drop it for. A delay needs no care: it counts from bornTimestamp, which is kept.
    """
    message = row.message
    # a bridge refuses the reason of a dead letter, which the row keeps
    properties = {name: text for name, text in message.properties.items() if not is_dead_letter_property(name)}
    properties[RESTORED_FROM] = f"{row.log}/{row.offset}"
    if message.expires is not None and message.expires <= now:
        if not expired:
            return None
        properties[RESTORED_EXPIRE_TIME] = str(message.expires)
        message = message._replace(expire_time=None)
    return message._replace(
        destination=destination or message.destination,
        properties=properties,
        partition=None,  # it follows the key, and there may be more or fewer of them by now
        store_timestamp=None,
        store_host=None,
        delivery_count=None,
    )


_STORED: Final = "coalesce(store_timestamp, mirrored_timestamp)"


class Selection(NamedTuple):
    """What is asked for. Times in ms since 1970: from the first on, before the second."""

    area: Area = "data"
    destinations: tuple[str, ...] = ()
    message_ids: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None


class DestinationTotal(NamedTuple):
    """How much there is of one destination. Times in ms since 1970."""

    destination: str
    rows: int
    bytes: int
    first: int
    last: int


def select(connection: duckdb.DuckDBPyConnection, selection: Selection, reached: Mapping[str, int]) -> None:
    """Create a view of the selected rows that are not sent yet: `reached` is the next offset by log."""
    connection.execute('CREATE TABLE done (log VARCHAR, "next" BIGINT)')
    if reached:
        connection.executemany("INSERT INTO done VALUES (?, ?)", list(reached.items()))
    conditions = " AND ".join(_conditions(selection))
    missing = 'NOT EXISTS (FROM done WHERE done.log = m.log AND m."offset" < done."next")'
    connection.execute(f"CREATE VIEW chosen AS FROM {MESSAGES} AS m WHERE {conditions} AND {missing}")


def amounts(connection: duckdb.DuckDBPyConnection) -> list[DestinationTotal]:
    """Count, by destination."""
    counted = (
        f"SELECT destination, count(*), coalesce(sum(body_size), 0)::BIGINT, min(epoch_ms({_STORED})), "  # noqa: S608
        f"max(epoch_ms({_STORED})) FROM chosen GROUP BY destination ORDER BY destination"
    )
    return [DestinationTotal(*row) for row in connection.execute(counted).fetchall()]


def in_order(connection: duckdb.DuckDBPyConnection, most: int | None = None) -> Iterator[Row]:
    """Yield the rows, log by log, each in the order of its offsets: so the order of a key is kept.

    The log that begins first comes first: if a log was created several times, the earlier comes before the later.
    """
    columns = [*(column.name for column in MESSAGE), "destination", "log", "offset"]
    shown = ", ".join(f'epoch_ms("{name}") AS "{name}"' if name in TIMES else f'm."{name}"' for name in columns)
    began = f"SELECT log AS of, min({_STORED}) AS began FROM chosen GROUP BY log"  # noqa: S608 - ours
    limit = "" if most is None else f"LIMIT {most}"
    rows = f'SELECT {shown} FROM chosen AS m JOIN ({began}) ON log = of ORDER BY began, m.log, m."offset" {limit}'  # noqa: S608
    connection.execute(rows)
    for values in iter(connection.fetchone, None):
        yield to_row(dict(zip(columns, values, strict=True)))


def _conditions(selection: Selection) -> Iterator[str]:
    yield AREAS[selection.area]
    for column, names in (("destination", selection.destinations), ("message_id", selection.message_ids)):
        if names:
            yield one_of(column, names)
    for operator, moment in ((">=", selection.start), ("<", selection.end)):
        if moment is not None:
            yield f"{_STORED} {operator} make_timestamptz({moment * 1000})"


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
            kept = json.loads(path.read_text("utf-8-sig"))
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
            done = [pair for place, pair in enumerate(zip(pending, results, strict=True)) if place not in rest]
            refused = [(message, result) for message, result in done if isinstance(result, BridgeError)]
            self._outcome.refused += refused
            self._outcome.stored += len(done) - len(refused)
            if done:
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


async def restore(  # noqa: PLR0913 - the input, the options and the callbacks
    client: Client,
    rows: Iterator[Row],
    state: State,
    outcome: Outcome,
    advance: Callable[[int], None],
    *,
    destination: str | None = None,
    expired: bool = False,
    rate: float | None = None,
) -> None:
    """Send everything; `destination` and `expired` as in `to_message`, `rate`: at most so many messages a second (> 0).

    `advance` gets the number of rows of each batch; `outcome` is complete also when this raises.
    """
    state.keep()  # before anything is sent: without its file the next run would send everything again
    sender = Sender(client, rate, outcome)
    while chunk := await asyncio.to_thread(_take, rows, sender.batch):
        now = time.time_ns() // 1_000_000
        there = [to_message(row, destination=destination, expired=expired, now=now) for row in chunk]
        messages = [message for message in there if message is not None]
        await sender.send(messages)
        outcome.expired += len(chunk) - len(messages)
        for row in chunk:
            state.next[row.log] = row.offset + 1
        state.keep()
        advance(len(chunk))


def _take(rows: Iterator[Row], most: int) -> list[Row]:
    taken: list[Row] = []
    size = 0
    while len(taken) < most and size < BATCH_BYTES and (row := next(rows, None)) is not None:
        taken.append(row)
        size += row.message.size
    return taken
