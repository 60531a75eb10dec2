"""`check --migrate` without a process: its report about one topic or queue."""

from bridge.migrate import Report, examine
from bridge.migrate.report import Finding, Verdict
from bridge.settings import load


async def report_on(backend: str, name: str, **settings: object) -> Report:
    """Inspect a topic or a queue."""
    return await examine(load(None, {"backend": backend, **settings}, {}), name)


def findings_about(report: Report, subject: str) -> list[Finding]:
    """Return the findings about one subject."""
    return [finding for finding in report.findings if finding.subject == subject]


def verdicts(report: Report) -> dict[str, set[Verdict]]:
    """Return the verdicts of each subject."""
    found: dict[str, set[Verdict]] = {}
    for finding in report.findings:
        found.setdefault(finding.subject, set()).add(finding.verdict)
    return found


def seen(report: Report, subject: str) -> str:
    """Return what was seen of a subject that has one finding."""
    [finding] = findings_about(report, subject)
    return finding.seen
