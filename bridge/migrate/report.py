"""Findings about a topic or a queue, and how they are printed. Pure."""

import json
from collections.abc import Sequence
from enum import Enum
from textwrap import wrap
from typing import Final, NamedTuple

_WIDTH: Final = 100
_INDENT: Final = " " * 4


class Verdict(Enum):
    """The meaning of a finding for the migration."""

    WORKS = "works"
    DIFFERS = "works differently"
    FAILS = "will not work"
    UNKNOWN = "unknown"


class Finding(NamedTuple):
    """One property of the topic or queue."""

    subject: str
    seen: str
    """The broker's answer, without a judgement."""
    verdict: Verdict
    advice: str
    """One sentence: what to do; for `UNKNOWN`, where to look."""


class Report(NamedTuple):
    """All findings about one topic or queue."""

    kind: str
    """topic or queue"""
    name: str
    findings: Sequence[Finding]

    @property
    def fit(self) -> bool:
        """Whether nothing fails."""
        return all(finding.verdict is not Verdict.FAILS for finding in self.findings)


def as_json(report: Report) -> str:
    """Return the report as one JSON object."""
    findings = [finding._asdict() | {"verdict": finding.verdict.value} for finding in report.findings]
    return json.dumps({report.kind: report.name, "fit": report.fit, "findings": findings})


def as_text(report: Report) -> str:
    """Return the report for a terminal, the worst findings first: subject, what was seen, and what to do."""
    worst_first = (Verdict.FAILS, Verdict.DIFFERS, Verdict.UNKNOWN, Verdict.WORKS)
    lines = [f"{report.kind} {report.name}: {_summary(report)}"]
    for verdict in worst_first:
        findings = [finding for finding in report.findings if finding.verdict is verdict]
        if findings:
            lines += ["", verdict.value.upper()]
        for finding in findings:
            lines += wrap(f"{finding.subject}: {finding.seen}", _WIDTH, initial_indent="  ", subsequent_indent=_INDENT)
            lines += wrap(finding.advice, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
    return "\n".join(lines)


def _summary(report: Report) -> str:
    counts = [(verdict, sum(finding.verdict is verdict for finding in report.findings)) for verdict in Verdict]
    return ", ".join(f"{count} {verdict.value}" for verdict, count in counts if count)
