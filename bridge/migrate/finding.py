"""What a look at a topic or a queue has found, and how bad it is. Pure."""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple


class Verdict(Enum):
    """What one finding means for the move."""

    WORKS = "works"
    DIFFERS = "works differently"
    FAILS = "will not work"
    UNKNOWN = "cannot be known"


class Finding(NamedTuple):
    """One thing that was looked at."""

    subject: str
    seen: str
    """What is there, without judgement."""
    verdict: Verdict
    advice: str
    """One sentence that says what to do; what to look at where it cannot be known."""


class Report(NamedTuple):
    """Everything about one topic or queue."""

    kind: str
    """topic or queue"""
    name: str
    findings: Sequence[Finding]

    @property
    def fit(self) -> bool:
        """Whether nothing is in the way."""
        return all(finding.verdict is not Verdict.FAILS for finding in self.findings)
