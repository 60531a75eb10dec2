"""What is found, and what it means. Pure: facts in, findings out."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from adapters.runs import Runs
from bridge.mirror.manifest import File, Gap, Ranges

Weight = Literal["fault", "behind", "note"]
Kind = Literal[
    "missing-file",
    "unpublished-file",
    "changed-file",
    "unknown-file",
    "missing-manifest",
    "doubled",
    "uncovered",
    "hole",
    "gap",
    "lost",
    "restarted",
    "gone",
    "behind",
    "ledger-missing",
    "ledger-doubled",
]

WEIGHTS: Final[Mapping[Kind, Weight]] = {
    "missing-file": "fault",
    "unpublished-file": "behind",
    "changed-file": "fault",
    "unknown-file": "fault",
    "missing-manifest": "fault",
    "doubled": "fault",
    "uncovered": "fault",
    "hole": "fault",
    "gap": "note",  # recorded when it was met, by somebody's own choice; a cron job need not fail for it for ever
    "lost": "fault",
    "restarted": "fault",
    "gone": "note",
    "behind": "behind",
    "ledger-missing": "fault",
    "ledger-doubled": "fault",
}
STATUS: Final[Mapping[Weight, int]] = {"fault": 1, "behind": 3, "note": 0}
"""Exit status by what weighs most; 2 is a mistyped command's."""


class Finding(NamedTuple):
    """One thing that is worth a line."""

    kind: Kind
    subject: str
    """A file, a log, a messageId."""
    number: int
    """Rows, offsets or copies: of what the sentence speaks of."""
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


class Told(NamedTuple):
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
    named: Sequence[Told] = ()
    """Of those that are wrong, all or the first."""


class Facts(NamedTuple):
    """What was seen. The catalogue was read twice: before the files were, and after."""

    expected: Mapping[str, File]
    """Files of both catalogues, by path."""
    known: AbstractSet[str]
    """Files of either."""
    listed: Mapping[str, int]
    """Files that are there, with their bytes."""
    staged: AbstractSet[str]
    """Files that are committed and wait to be put in their places."""
    read: Mapping[str, int]
    """Rows by file, as Spark reads them."""
    doubled: Mapping[str, Span]
    """By log, the positions that occur more than once."""
    uncovered: Mapping[str, Span]
    """By log, the rows that no manifest speaks of."""
    skipped: Mapping[str, Sequence[int]]
    """By query, batches without a manifest before one that has one."""
    covered: Mapping[str, Runs]
    """After."""
    gaps: Sequence[Gap]
    before: Mapping[str, int]
    """By log, how far the mirror had come before the backend was asked."""
    after: Mapping[str, int]
    bounds: Ranges | None = None
    """What the backend keeps; None: it was not asked."""
    ledger: Ledger = Ledger()


def judge(facts: Facts) -> list[Finding]:
    """Return everything worth a line, what weighs most first."""
    found = [*_files(facts), *_logs(facts), *_backend(facts), *_ledger(facts.ledger)]
    order = list(WEIGHTS)
    return sorted(found, key=lambda f: (-_rank(f), order.index(f.kind), f.subject))


def status(findings: Sequence[Finding]) -> int:
    """Return the exit status: 0 all is well, 1 something is wrong, 3 the mirror is only behind."""
    return STATUS[max((f.weight for f in findings), key=_RANKS.index, default="note")]


_RANKS: Final[Sequence[Weight]] = ("note", "behind", "fault")


def _rank(finding: Finding) -> int:
    return _RANKS.index(finding.weight)


def _files(facts: Facts) -> Iterator[Finding]:
    for path, file in facts.expected.items():
        if path not in facts.listed:
            if path in facts.staged:
                yield Finding("unpublished-file", path, file.rows, "is committed; the job's next start puts it here")
            else:
                yield Finding("missing-file", path, file.rows, f"is not there; it held {file.rows} rows")
        elif (rows := facts.read.get(path, 0)) != file.rows:
            yield Finding(
                "changed-file", path, abs(rows - file.rows), f"has {rows} readable rows instead of {file.rows}"
            )
        elif facts.listed[path] != file.bytes:
            yield Finding("changed-file", path, 0, f"has {facts.listed[path]} bytes instead of {file.bytes}")
    for path in facts.listed.keys() - facts.known:
        rows = facts.read.get(path, 0)
        yield Finding("unknown-file", path, rows, f"stands in no manifest; readers see {rows} rows of it")


def _logs(facts: Facts) -> Iterator[Finding]:
    for query, batches in facts.skipped.items():
        says = f"has no manifest of its batches {', '.join(map(str, batches))}, but of later ones"
        yield Finding("missing-manifest", query, len(batches), says)
    for log, span in facts.doubled.items():
        yield Finding("doubled", log, span.number, f"has {span.number} offsets more than once, {_from_to(span)}")
    for log, span in facts.uncovered.items():
        says = f"has {span.number} rows that no manifest speaks of, {_from_to(span)}"
        yield Finding("uncovered", log, span.number, says)
    for log, covered in facts.covered.items():
        for (_, end), (start, _) in pairwise(covered.bounds()):
            yield Finding("hole", log, start - end, f"was never mirrored from offset {end} to {start - 1}")
    for gap in facts.gaps:
        count = 0 if gap.end is None else gap.end - gap.start
        to = "on" if gap.end is None else f"to {gap.end - 1}"
        says = f"had lost its offsets from {gap.start} {to} before the mirror came to them"
        yield Finding("gap", gap.log, count, says)


def _backend(facts: Facts) -> Iterator[Finding]:
    if facts.bounds is None:
        return
    for log, (first, end) in facts.bounds.items():
        began, reached = facts.before.get(log), facts.after.get(log)
        if began is not None and end < began:
            says = f"ends at offset {end}, the mirror is at {began}: it was deleted and begun anew"
            yield Finding("restarted", log, began - end, says)
        elif reached is not None and reached < first:
            says = f"has dropped the offsets from {reached} to {first - 1}; they can no longer be mirrored"
            yield Finding("lost", log, first - reached, says)
        elif (behind := end - max(first, reached or 0)) > 0:
            yield Finding("behind", log, behind, f"has {behind} offsets that are not mirrored yet")
    for log in facts.after.keys() - facts.bounds.keys():
        yield Finding("gone", log, 0, "is no longer kept by the backend")


def _ledger(ledger: Ledger) -> Iterator[Finding]:
    for told in ledger.named:
        where = "" if told.destination is None else f" of {told.destination}"
        if told.copies < told.confirmed:
            kind: Kind = "ledger-missing"
            says = f"{where} was confirmed {_times(told.confirmed)} and is here {_times(told.copies)}"
        else:
            kind = "ledger-doubled"
            says = f"{where} was confirmed {_times(told.confirmed)} and is here {_times(told.copies)}"
        yield Finding(kind, told.message_id, abs(told.copies - told.confirmed), says.strip())


def _times(number: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(number, f"{number} times")


def _from_to(span: Span) -> str:
    return "without an offset" if span.first is None else f"from {span.first} to {span.last}"
