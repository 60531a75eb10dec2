"""The verdict as text and as JSON. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from bridge.cli.run_command import printable
from bridge.mirror.verify.findings import Finding, Observations, status

SHOWN: Final = 20
"""Lines of one kind that a person is shown."""
_WORDS: Final = {
    0: "no errors",
    1: "errors found",
    3: "no errors, but the mirror is behind",
}


def as_text(observations: Observations, findings: Sequence[Finding], *, with_ledger: bool) -> str:
    """Return a line for each finding, the first ones of each kind, and the verdict."""
    ledger = observations.ledger
    lines = [*_shown(findings, {"ledger-missing": ledger.missing, "ledger-doubled": ledger.doubled})]
    widths = [max((len(line[column]) for line in lines), default=0) for column in (0, 1, 2)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, [*widths, 0], strict=True)) for line in lines]
    sums = [f"{observations.rows} rows in {len(observations.files)} files of {len(observations.covered)} logs"]
    if with_ledger:
        sums.append(f"ledger: {ledger.confirmed} confirmed, {ledger.missing} missing, {ledger.doubled} duplicated")
    return "\n".join([*(line.rstrip() for line in text), *sums, _WORDS[status(findings)]])


def as_json(observations: Observations, findings: Sequence[Finding], *, with_ledger: bool) -> str:
    """Return one object with every finding."""
    ledger = {name: value for name, value in observations.ledger._asdict().items() if name != "named"}
    return json.dumps(
        {
            "status": status(findings),
            "rows": observations.rows,
            "files": len(observations.files),
            "logs": len(observations.covered),
            "ledger": ledger if with_ledger else None,
            "findings": [{"weight": f.weight, **f._asdict()} for f in findings],
        }
    )


def _shown(findings: Sequence[Finding], unnamed: Mapping[str, int]) -> Iterator[tuple[str, str, str, str]]:
    """`unnamed`: how many there are of a kind of which only the first have names here."""
    for kind, all_of_it in groupby(findings, key=lambda finding: finding.kind):
        of_kind = list(all_of_it)
        for finding in of_kind[:SHOWN]:
            yield (finding.weight, kind, printable(finding.subject), printable(finding.says))
        if (more := max(len(of_kind), unnamed.get(kind, 0)) - SHOWN) > 0:
            yield (of_kind[0].weight, kind, "…", f"and {more} more; --json names them all")
