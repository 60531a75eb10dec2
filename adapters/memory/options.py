"""The URL of the memory backend: `memory://?max_messages=1000&journal=/var/lib/bridge`."""

from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

from adapters.url_options import alternatives

DAY: Final = 24 * 3600 * 1000


class Options(NamedTuple):
    """Limits of a memory backend, and the directory of its journal."""

    partitions: int = 8
    """Number for new destinations; a destination in the journal keeps its own."""
    max_messages: int = 1_000_000
    """In the whole backend, delayed messages included."""
    max_bytes: int = 256 << 20
    """In the whole backend, as `record.footprint` estimates them."""
    retention: int = 7 * DAY
    """Milliseconds after which a message is dropped, read or not, and a group without a subscription is forgotten."""
    max_destinations: int = 1000
    max_groups: int = 1000
    """In the whole backend."""
    journal: Path | None = None
    """Directory of the journal; None: nothing survives the process."""


_MAXIMUM: Final = {
    "partitions": 1024,
    "max_messages": 10**9,
    "max_bytes": 2**50,
    "retention": 36_500 * DAY,
    "max_destinations": 10**6,
    "max_groups": 10**6,
}


def parse(url: str) -> Options:
    """Read a `memory://` URL. Raises `ValueError` with one sentence that says what is allowed."""
    place, _, query = url.partition("?")
    if place not in {"memory:", "memory://", "memory:///"}:
        raise ValueError(f"{place!r}: the memory backend is memory://?name=value&…, without a host or a path.")
    given: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name not in Options._fields:
            raise ValueError(f"{url!r}: unknown option {name!r}{alternatives(name, Options._fields)}")
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
    raise ValueError(f"{name}={value[:40]!r}: the value must be a whole number from 1 to {maximum}, in plain digits.")
