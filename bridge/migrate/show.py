"""A report as a person or a program reads it. Pure."""

import json
from textwrap import wrap
from typing import Final

from bridge.migrate.finding import Report, Verdict

_WIDTH: Final = 100
_INDENT: Final = " " * 4


def as_json(report: Report) -> str:
    """Return one JSON object."""
    findings = [finding._asdict() | {"verdict": finding.verdict.value} for finding in report.findings]
    return json.dumps({report.kind: report.name, "fit": report.fit, "findings": findings})


def as_text(report: Report) -> str:
    """Return the worst first: what it is about, what was seen, and under it what to do."""
    worst = (Verdict.FAILS, Verdict.DIFFERS, Verdict.UNKNOWN, Verdict.WORKS)
    lines = [f"{report.kind} {report.name}: {_summary(report)}"]
    for verdict in worst:
        of_it = [finding for finding in report.findings if finding.verdict is verdict]
        if of_it:
            lines += ["", verdict.value.upper()]
        for finding in of_it:
            lines += wrap(f"{finding.subject}: {finding.seen}", _WIDTH, initial_indent="  ", subsequent_indent=_INDENT)
            lines += wrap(finding.advice, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
    return "\n".join(lines)


def _summary(report: Report) -> str:
    counts = [(v, sum(finding.verdict is v for finding in report.findings)) for v in Verdict]
    return ", ".join(f"{count} {verdict.value}" for verdict, count in counts if count)
