"""The memory backend: the reference for other adapters; durable if its URL names a journal."""

from adapters.base import Adapter
from adapters.memory.adapter import MemoryAdapter
from adapters.memory.journal_directory import JournalCorrupt
from adapters.memory.options import parse

__all__ = ["JournalCorrupt", "connect"]


def connect(url: str) -> Adapter:
    """Build the adapter that a `memory://` URL describes. Raises `ValueError` with what is allowed."""
    options = parse(url)
    if options.journal is None:
        return MemoryAdapter(options)
    from adapters.memory.durable_adapter import DurableAdapter  # noqa: PLC0415 - sqlite3: 1 MiB of memory

    return DurableAdapter(options)
