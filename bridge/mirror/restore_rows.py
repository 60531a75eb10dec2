"""Which rows `mirror restore` sends, in which order, and the messages that they become."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

import duckdb

from bridge.message import Message
from bridge.mirror.query import AREAS, one_of
from bridge.mirror.schema import MESSAGE, Area
from bridge.mirror.table import MESSAGES

RESTORED_FROM: Final = "oms-restored-from"
"""Property: the place in the mirror, `<log>/<offset>`."""
RESTORED_EXPIRE_TIME: Final = "oms-restored-expiretime"
"""Property: the expireTime of a message that had expired and was restored all the same."""

_FIELDS: Final = [str(column.attribute) for column in MESSAGE]


class Row(NamedTuple):
    """A message, and where it lay."""

    message: Message
    log: str
    offset: int


def to_row(values: Mapping[str, object]) -> Row:
    """Read a row: times in ms since 1970, absent properties and an absent body are empty ones."""
    fields = {name: values[name] for name in _FIELDS}
    fields["body"] = bytes(values["body"] or b"")  # type: ignore[call-overload]  # a blob
    fields["properties"] = dict(values["properties"] or {})  # type: ignore[call-overload]  # a map of texts
    message = Message(str(values["destination"]), **fields)  # type: ignore[arg-type]  # as the schema has them
    return Row(message, str(values["log"]), int(values["offset"]))  # type: ignore[call-overload]  # a bigint


def to_message(row: Row, *, destination: str | None, expired: bool, now: int) -> Message | None:
    """Return the message to send; None: its time is over.

    `destination`: another one than its own. `expired`: send also what has expired, without its expireTime, which a
    bridge would drop it for. A delay needs no care: it counts from bornTimestamp, which is kept.
    """
    message, properties = row.message, {**row.message.properties, RESTORED_FROM: f"{row.log}/{row.offset}"}
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
_CHOSEN: Final = "chosen"
_DONE: Final = "done"


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
    connection.execute(f'CREATE TABLE {_DONE} (log VARCHAR, "next" BIGINT)')
    if reached:
        connection.executemany(f"INSERT INTO {_DONE} VALUES (?, ?)", list(reached.items()))  # noqa: S608 - ours
    conditions = " AND ".join(_conditions(selection))
    missing = f'NOT EXISTS (FROM {_DONE} WHERE {_DONE}.log = m.log AND m."offset" < {_DONE}."next")'
    chosen = f"SELECT * FROM {MESSAGES} AS m WHERE {conditions} AND {missing}"  # noqa: S608 - quoted
    connection.execute(f"CREATE VIEW {_CHOSEN} AS {chosen}")


def amounts(connection: duckdb.DuckDBPyConnection) -> list[DestinationTotal]:
    """Count, by destination."""
    counted = (
        f"SELECT destination, count(*), coalesce(sum(body_size), 0)::BIGINT, min(epoch_ms({_STORED})), "  # noqa: S608
        f"max(epoch_ms({_STORED})) FROM {_CHOSEN} GROUP BY destination ORDER BY destination"
    )
    return [DestinationTotal(*row) for row in connection.execute(counted).fetchall()]


def in_order(connection: duckdb.DuckDBPyConnection, most: int | None = None) -> Iterator[Row]:
    """Yield the rows, log by log, each in the order of its offsets: so the order of a key is kept.

    The log that begins first comes first: if a log was created several times, the earlier comes before the later.
    """
    times = {column.name for column in MESSAGE if column.kind == "timestamp"}
    columns = [*(column.name for column in MESSAGE), "destination", "log", "offset"]
    shown = ", ".join(f'epoch_ms("{name}") AS "{name}"' if name in times else f'm."{name}"' for name in columns)
    began = f"SELECT log AS of, min({_STORED}) AS began FROM {_CHOSEN} GROUP BY log"  # noqa: S608 - ours
    limit = "" if most is None else f"LIMIT {most}"
    rows = f'SELECT {shown} FROM {_CHOSEN} AS m JOIN ({began}) ON log = of ORDER BY began, m.log, m."offset" {limit}'  # noqa: S608
    connection.execute(rows)
    for values in iter(connection.fetchone, None):
        yield to_row(dict(zip(columns, values, strict=True)))


def _conditions(selection: Selection) -> Iterator[str]:
    yield AREAS[selection.area]
    for column, names in (("destination", selection.destinations), ("message_id", selection.message_ids)):
        if names:
            yield one_of(column, names)
    for operator, moment in ((">=", selection.start), ("<", selection.end)):
        if moment is not None:  # the day too, so that files of other days are not opened
            yield f"{_STORED} {operator} make_timestamptz({moment * 1000})"
            yield f"date {operator.rstrip('=')}= '{datetime.fromtimestamp(moment / 1000, UTC):%Y-%m-%d}'"
