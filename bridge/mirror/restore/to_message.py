"""From a row of the mirror back to a message. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from bridge.message import Message
from bridge.mirror.schema import MESSAGE

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
    fields["body"] = bytes(values["body"] or b"")  # type: ignore[call-overload]  # Spark's bytearray
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
