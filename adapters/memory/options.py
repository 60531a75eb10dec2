"""The URL of the memory backend: `memory://?max_messages=1000&journal=/var/lib/bridge`."""

from pathlib import Path
from typing import Final, NamedTuple

from adapters.url_options import Grammar, whole_number

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


def _directory(text: str) -> Path:
    if not text.strip() or "\0" in text:
        raise ValueError("the value names a directory, as in journal=/var/lib/oms-bridge")
    return Path(text)


_GRAMMAR: Final = Grammar(
    "memory://",
    {
        "partitions": whole_number(1, 1024),
        "max_messages": whole_number(1, 10**9),
        "max_bytes": whole_number(1, 2**50),
        "retention": whole_number(1, 36_500 * DAY),
        "max_destinations": whole_number(1, 10**6),
        "max_groups": whole_number(1, 10**6),
        "journal": _directory,
    },
)


def parse(url: str) -> Options:
    """Read a `memory://` URL. Raises `ValueError` with one sentence that says what is allowed."""
    place, _, query = url.partition("?")
    if place not in {"memory:", "memory://", "memory:///"}:
        raise ValueError("The memory backend is memory://?name=value&…, without a host or a path.")
    return Options(**_GRAMMAR.read("", query)[1])
