"""Header fields as query parameters with short names, for producers that cannot set headers. Pure: the time is given.

`?key=customer-12&delay=5s` means the same as `x-oms-h-messagekey: customer-12` and `x-oms-h-delaytime: 5000`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from bridge.errors import HeaderInvalid, HeaderRepeated
from bridge.message import FIELDS, LONG_MAX, Field
from bridge.wire.header_text import did_you_mean, printable
from bridge.wire.headers import read_number

QUERY_NAMES: Final[Mapping[str, str]] = {
    "id": "messageId",
    "key": "messageKey",
    "delay": "delayTime",
    "expire": "expireTime",
    "priority": "priority",
    "partition": "partition",
    "correlation": "correlationId",
    "trace": "traceId",
    "transaction": "transactionId",
    "durability": "durability",
    "qos": "qos",
    "compression": "compression",
    "born": "bornTimestamp",
    "host": "bornHost",
}
"""Each query parameter and the field that it sets."""
DURATIONS: Final = frozenset(("delay", "expire"))
"""The parameters that are durations after bornTimestamp, with a unit."""
REQUIRE: Final = "require"
"""The query parameter that is `x-oms-require`."""

_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NAME_BY_ATTRIBUTE: Final = {field.attribute: field.name for field in FIELDS}
_FIELD_BY_NAME: Final = {field.name: field for field in FIELDS}
_FIELD_BY_QUERY_NAME: Final = {name: _FIELD_BY_NAME[field] for name, field in QUERY_NAMES.items()}
_SUGGESTIONS: Final = (
    {name: name for name in (*QUERY_NAMES, REQUIRE)}
    | {field.lower(): name for name, field in QUERY_NAMES.items()}
    | {f"x-oms-h-{field.lower()}": name for name, field in QUERY_NAMES.items()}
)


def read_duration(name: str, text: str, maximum: int = LONG_MAX) -> int:
    """Return the milliseconds of `500ms`, `5s`, `2m`, `1h` or `7d`, 0 to maximum. Raises `HeaderInvalid`."""
    digits = text.rstrip("".join(_UNITS))
    factor = _UNITS.get(text[len(digits) :])
    if factor is None or not digits:
        shown = printable(text.encode("utf-8", "replace")) or "an empty value"
        raise HeaderInvalid(f"{name}: {shown} is not a duration; write a number and ms, s, m, h or d, such as 5s.")
    return read_number(name, digits, maximum // factor) * factor


class QueryValues(NamedTuple):
    """What a query sets."""

    fields: dict[str, Any]
    """Fields by their attribute of `Message`."""
    parameters: dict[str, str]
    """`require`, if it is given."""


def read_query(pairs: Iterable[Sequence[str]], born: int) -> QueryValues:
    """Return what a query sets; `expire` sets bornTimestamp, too: to `born`, ms since 1970, if the query has no other.

    Raises `HeaderInvalid` for an unknown parameter or a wrong value, `HeaderRepeated` for a parameter given twice.
    """
    fields: dict[str, Any] = {}
    parameters: dict[str, str] = {}
    for given, text in pairs:
        name = given.lower()
        field = _FIELD_BY_QUERY_NAME.get(name)
        if field is None and name != REQUIRE:
            raise _unknown(given)
        if name in parameters or (field is not None and field.attribute in fields):
            raise HeaderRepeated(f"{name} is given twice in the query.")
        if field is None:
            parameters[name] = text
        else:
            fields[field.attribute] = _read(name, field, text)
    if "expire_time" in fields:
        born = fields.setdefault("born_timestamp", born)  # else the bridge would set a later one
        fields["expire_time"] = min(born + fields["expire_time"], LONG_MAX)
    return QueryValues(fields, parameters)


def merge_values(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields, properties or parameters as one. Raises `HeaderRepeated` if one has different values."""
    for name, value in second.items():
        if first.get(name, value) != value:
            shown = _NAME_BY_ATTRIBUTE.get(name, name)
            raise HeaderRepeated(f"{shown} is given twice with different values.")
    return {**first, **second}


def _unknown(given: str) -> HeaderInvalid:
    hint = did_you_mean(given, _SUGGESTIONS) or f"; {', '.join((*QUERY_NAMES, REQUIRE))} are allowed."
    return HeaderInvalid(f"unknown query parameter `{printable(given.encode('utf-8', 'replace'))}`{hint}")


def _read(name: str, field: Field, text: str) -> str | int:
    if name in DURATIONS:
        duration = read_duration(name, text)
        if name == "expire" and not duration:
            raise HeaderInvalid("expire: 0 is out of range; leave the parameter out for a message that never expires.")
        return duration
    if field.maximum is not None:
        return read_number(name, text, field.maximum)
    if not text and field.required:
        raise HeaderInvalid(f"{name}: the value is empty.")
    return text
