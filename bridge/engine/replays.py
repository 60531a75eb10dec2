"""Repeated pulls: "a repeated pull with the same id returns the same message while its lease lives"."""

from typing import Final

from bridge.engine.window import Entry, Window

_STALE: Final = 256
"""Request ids of ended leases that may pile up before they are forgotten."""


class Replays:
    """Which lease was the answer to which request id."""

    def __init__(self, window: Window) -> None:
        self._leases = window.leases
        self._answered: dict[str, tuple[Entry, int]] = {}

    def __len__(self) -> int:
        return len(self._answered)

    def find(self, request_id: str, mono: int) -> Entry | None:
        """Return the entry that an earlier pull of this id was given, while that lease lives."""
        entry, number = self._answered.get(request_id, (None, -1))
        if entry is None or self._leases.get(number) is not entry or entry.deadline <= mono:
            return None
        entry.holders += 1
        return entry

    def remember(self, request_id: str, entry: Entry) -> None:
        """Note what a pull was given."""
        if len(self._answered) > 2 * len(self._leases) + _STALE:
            self._answered = {r: (e, n) for r, (e, n) in self._answered.items() if self._leases.get(n) is e}
        self._answered[request_id] = (entry, entry.number)
