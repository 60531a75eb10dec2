"""More than a hundred groups come, leave and come again, with the memory backend; the brokers have their own."""

from pathlib import Path

import pytest

from tests.ledger.churn import churn


@pytest.mark.parametrize("journal", [False, pytest.param(True, marks=pytest.mark.extended)])
async def test_each_gets_what_it_has_not_acknowledged(journal: bool, tmp_path: Path) -> None:
    backend = f"memory://?journal={tmp_path / 'journal'}" if journal else "memory://"
    await churn(tmp_path / "bridge", backend, rounds=2)
