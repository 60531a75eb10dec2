"""What `mirror verify` finds, and what it means. Pure: observations in, findings out."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from bridge.mirror.offsets import Gap, Ranges

Weight = Literal["fault", "behind", "note"]
WEIGHTS: Final[Mapping[str, Weight]] = {
    "missing-file": "fault",
    "changed-file": "fault",
    "doubled": "fault",
    "uncovered": "fault",
    "gap": "note",  # recorded when it was met, by an operator's choice; a cron job need not fail for it forever
    "lost": "fault",
    "restarted": "fault",
    "gone": "note",
    "behind": "behind",
    "ledger-missing": "fault",
    "ledger-behind": "behind",
    "ledger-doubled": "fault",
}
STATUS: Final[Mapping[Weight, int]] = {"note": 0, "behind": 3, "fault": 1}
"""Exit status by what weighs most, the lightest first; 2 is a mistyped command's."""
_RANKS: Final = list(STATUS)


class Finding(NamedTuple):
    """One thing that is worth a line."""

    kind: str
    """One of `WEIGHTS`."""
    subject: str
    """A file, a log, a messageId."""
    number: int
    """Rows, offsets or copies, as in the sentence."""
    says: str

    @property
    def weight(self) -> Weight:
        """How much it matters."""
        return WEIGHTS[self.kind]


class Span(NamedTuple):
    """Rows of one log."""

    number: int
    first: int | None
    last: int | None
    """None: rows without an offset."""


class LedgerEntry(NamedTuple):
    """A message that a ledger confirms, and how often it is there."""

    message_id: str
    destination: str | None
    confirmed: int
    copies: int


class Ledger(NamedTuple):
    """What became of a producer's ledger."""

    confirmed: int = 0
    missing: int = 0
    doubled: int = 0
    named: Sequence[LedgerEntry] = ()
    """Of those that are wrong, all or the first."""


class FileObservation(NamedTuple):
    """One file of a table: what the table's log says of it, and what is there."""

    path: str
    """Relative to the mirror."""
    rows: int
    bytes: int
    size: int | None
    """Bytes; None: there is no such file."""
    read: int | None
    """Rows that can be read; None: the file cannot be read."""


class Observations(NamedTuple):
    """What was seen."""

    files: Sequence[FileObservation] = ()
    doubled: Mapping[str, Span] = MappingProxyType({})
    """By log, the positions that occur more than once."""
    uncovered: Mapping[str, Span] = MappingProxyType({})
    """By log, the rows that no commit covers."""
    covered: Ranges = MappingProxyType({})
    """What the mirror holds after the backend was asked."""
    gaps: Sequence[Gap] = ()
    before: Mapping[str, int] = MappingProxyType({})
    """By log, the next offset of the mirror before the backend was asked."""
    bounds: Ranges | None = None
    """What the backend keeps; None: it was not asked."""
    ledger: Ledger | None = None
    """None: there is none, or it could not be compared, because messages cannot be read."""

    @property
    def rows(self) -> int:
        """Rows that can be read."""
        return sum(file.read or 0 for file in self.files)


def evaluate(observations: Observations) -> list[Finding]:
    """Return everything worth a line, what weighs most first."""
    backend = list(_backend(observations))
    behind = sum(finding.number for finding in backend if finding.kind == "behind")
    ledger = _ledger(observations.ledger, behind)
    found = [*_files(observations), *_logs(observations), *backend, *ledger]
    order = list(WEIGHTS)
    return sorted(found, key=lambda f: (-_RANKS.index(f.weight), order.index(f.kind), f.subject))


def status(findings: Sequence[Finding]) -> int:
    """Return the exit status: 0 no errors, 1 errors found, 3 the mirror is only behind."""
    return STATUS[max((f.weight for f in findings), key=_RANKS.index, default="note")]


def _files(observations: Observations) -> Iterator[Finding]:
    for file in observations.files:
        if file.size is None or file.size <= 0:
            yield Finding("missing-file", file.path, file.rows, f"is missing; it held {file.rows} rows")
        elif file.read != file.rows:
            says = f"has {file.read or 0} readable rows instead of {file.rows}"
            yield Finding("changed-file", file.path, abs((file.read or 0) - file.rows), says)
        elif file.size != file.bytes:
            yield Finding("changed-file", file.path, 0, f"has {file.size} bytes instead of {file.bytes}")


def _logs(observations: Observations) -> Iterator[Finding]:
    for log, span in observations.doubled.items():
        yield Finding("doubled", log, span.number, f"has {span.number} offsets more than once, {_from_to(span)}")
    for log, span in observations.uncovered.items():
        says = f"has {span.number} rows that no commit covers, {_from_to(span)}"
        yield Finding("uncovered", log, span.number, says)
    for gap in observations.gaps:
        count, to = (0, "on") if gap.end is None else (gap.end - gap.start, f"to {gap.end - 1}")
        says = f"lost its offsets from {gap.start} {to} before the mirror read them"
        yield Finding("gap", gap.log, count, says)


def _backend(observations: Observations) -> Iterator[Finding]:
    if observations.bounds is None:
        return
    for log, (first, end) in observations.bounds.items():
        began, (_, reached) = observations.before.get(log), observations.covered.get(log, (0, None))
        if began is not None and end < began:
            says = f"ends at offset {end}, the mirror is at {began}: it was recreated"
            yield Finding("restarted", log, began - end, says)
        elif reached is not None and reached < first:
            says = f"has dropped the offsets from {reached} to {first - 1}; they can no longer be mirrored"
            yield Finding("lost", log, first - reached, says)
        elif (behind := end - max(first, reached or 0)) > 0:
            yield Finding("behind", log, behind, f"has {behind} offsets that are not mirrored yet")
    for log in observations.covered.keys() - observations.bounds.keys():
        yield Finding("gone", log, 0, "is no longer kept by the backend")


def _ledger(ledger: Ledger | None, behind: int) -> Iterator[Finding]:
    """`behind`: offsets that are not mirrored yet. As many missing messages may still come."""
    if ledger is None:
        return
    missing = "ledger-behind" if ledger.missing <= behind else "ledger-missing"
    for entry in ledger.named:
        where = "" if entry.destination is None else f" of {entry.destination}"
        kind = missing if entry.copies < entry.confirmed else "ledger-doubled"
        says = f"{where} was confirmed {_times(entry.confirmed)} and is here {_times(entry.copies)}"
        yield Finding(kind, entry.message_id, abs(entry.copies - entry.confirmed), says.strip())


def _times(number: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(number, f"{number} times")


def _from_to(span: Span) -> str:
    return "without an offset" if span.first is None else f"from {span.first} to {span.last}"
