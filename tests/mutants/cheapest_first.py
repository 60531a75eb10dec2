"""A pytest plugin for the runs of mutants: the quickest tests go first, so that most mutants fail within a second."""

import json
from pathlib import Path

import pytest

TIMES = Path("mutmut-stats.json")
"""Where mutmut keeps what each test took without a mutant; there is none before it has looked."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by that time; an unknown test goes first."""
    if TIMES.exists():
        times: dict[str, float] = json.loads(TIMES.read_text("utf-8"))["duration_by_test"]
        items.sort(key=lambda item: times.get(item.nodeid, 0))
