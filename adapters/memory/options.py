"""The URL of the memory backend: `memory://?max_messages=1000&journal=/var/lib/bridge`."""

from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

DAY: Final = 24 * 3600 * 1000


class Options(NamedTuple):
    """What a memory backend may hold, and where it keeps it."""

    partitions: int = 8
    """Of a destination created from now on; one that the journal knows keeps its number."""
    max_messages: int = 1_000_000
    """In the whole backend, those waiting to be due included."""
    max_bytes: int = 256 << 20
    """In the whole backend, by the estimate of `partition.footprint`."""
    retention: int = 7 * DAY
    """Milliseconds after which a message goes even unread, and a group that nobody joins is forgotten."""
    max_destinations: int = 1000
    max_groups: int = 1000
    """In the whole backend."""
    journal: Path | None = None
    """The directory of the journal; None: nothing survives the process."""


_MAXIMUM: Final = {
    "partitions": 1024,
    "max_messages": 10**9,
    "max_bytes": 2**50,
    "retention": 36_500 * DAY,
    "max_destinations": 10**6,
    "max_groups": 10**6,
}
_ALLOWED: Final = ", ".join((*_MAXIMUM, "journal"))


def parse(url: str) -> Options:
    """Read a `memory://` URL. Raises `ValueError` with one sentence that says what is allowed."""
    place, _, query = url.partition("?")
    if place not in {"memory:", "memory://", "memory:///"}:
        raise ValueError(f"{place!r}: the memory backend is memory://?name=value&…, without a host or a path.")
    given: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name not in Options._fields:
            raise ValueError(f"{url!r}: there is no option {name!r}; allowed are {_ALLOWED}.")
        if name in given:
            raise ValueError(f"{url!r}: {name} is given twice; once is allowed.")
        given[name] = unquote(value)
    journal = given.pop("journal", None)
    if journal is not None and (not journal.strip() or "\0" in journal):
        raise ValueError(f"{url!r}: journal names a directory, as in journal=/var/lib/oms-bridge.")
    numbers = {name: _number(name, value) for name, value in given.items()}
    return Options()._replace(journal=None if journal is None else Path(journal), **numbers)


def _number(name: str, value: str) -> int:
    maximum = _MAXIMUM[name]
    # isdigit alone also takes other scripts' digits; the length keeps int() away from hostile ones
    if value.isascii() and value.isdigit() and len(value) <= len(str(maximum)) and 1 <= int(value) <= maximum:
        return int(value)
    raise ValueError(f"{name}={value[:40]!r}: a whole number from 1 to {maximum} is allowed, in plain digits.")
