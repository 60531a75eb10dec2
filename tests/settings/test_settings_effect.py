"""Every setting reaches the running bridge: the table of values and of what a client sees."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from bridge.settings import list_settings
from tests.settings.bridge_client import PATIENCE
from tests.settings.comparison import NotObserved
from tests.settings.conftest import Opened
from tests.settings.table import COMPARISONS, TESTED_SEPARATELY, Comparison


def test_the_table_names_every_setting() -> None:
    rows = {row.setting for comparison in COMPARISONS for row in comparison.rows}
    assert rows | TESTED_SEPARATELY == {setting.name for setting in list_settings()}


def test_the_table_changes_every_setting() -> None:
    """A row whose value is the default shows nothing; nor does one that expects the same of both bridges."""
    defaults = {setting.name: setting.default for setting in list_settings()}
    rows = [row for comparison in COMPARISONS for row in comparison.rows]
    assert [row.setting for row in rows if row.value == defaults[row.setting] or row.changed == row.default] == []


@pytest.mark.parametrize(
    ("comparison", "server"),
    [
        pytest.param(
            comparison,
            server,
            id=f"{comparison.name}-{server}".replace(" ", "-"),
            marks=[pytest.mark.extended] if place else [],  # `make test` takes the first server of each comparison
        )
        for comparison in COMPARISONS
        for place, server in enumerate(comparison.servers)
    ],
)
def test_a_changed_setting_changes_what_a_client_sees(
    comparison: Comparison, server: str, default: Opened, changed: Opened, subtests: pytest.Subtests
) -> None:
    bridge = changed(comparison, server)
    reference = None
    for row in comparison.rows:
        with subtests.test(msg=f"{row.setting} changed", see=row.observe.__doc__):
            assert row.observe(bridge) == row.changed
        if isinstance(row.default, NotObserved):
            continue
        reference = reference or default(comparison, server)
        with subtests.test(msg=f"{row.setting} by default", see=(row.observe_default or row.observe).__doc__):
            assert (row.observe_default or row.observe)(reference) == row.default


def test_a_backend_file_names_the_backend(tmp_path: Path) -> None:
    """`Bridge` sets OMS_BACKEND, which must not be set beside the file: so this bridge is started by hand."""
    (tmp_path / "backend").write_text("memory://?partitions=5\n", "utf-8")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OMS_")}
    environ |= {"OMS_BACKEND_FILE": "backend", "OMS_LISTEN": "127.0.0.1:0", "OMS_MANAGEMENT": "127.0.0.1:0"}
    command = [str(Path(sys.executable).with_name("oms-bridge")), "serve"]
    with subprocess.Popen(command, env=environ, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert "backend memory://?partitions=***," in ready
            url = ready.partition("messages on ")[2].partition(",")[0] + "/v1/messages"
            for partition, status in ((4, 200), (5, 400)):
                headers = {"destination": "orders", "partition": str(partition)}
                sent = {"x-oms-version": "1.0.0"} | {f"x-oms-h-{name}": value for name, value in headers.items()}
                assert httpx.post(url, headers=sent, trust_env=False, timeout=PATIENCE).status_code == status
        finally:
            process.kill()
