"""`check --migrate` without a process: what it says of one thing."""

from bridge.migrate import Report, examine
from bridge.migrate.finding import Finding, Verdict
from bridge.settings import load


async def look(backend: str, name: str, **settings: object) -> Report:
    """Look at a topic or a queue."""
    return await examine(load(None, {"backend": backend, **settings}, {}), name)


def of(report: Report, subject: str) -> list[Finding]:
    """Return the findings about one thing."""
    return [finding for finding in report.findings if finding.subject == subject]


def verdicts(report: Report) -> dict[str, set[Verdict]]:
    """Return what is said of each thing."""
    found: dict[str, set[Verdict]] = {}
    for finding in report.findings:
        found.setdefault(finding.subject, set()).add(finding.verdict)
    return found


def seen(report: Report, subject: str) -> str:
    """Return what was seen of a thing that is mentioned once."""
    [finding] = of(report, subject)
    return finding.seen
