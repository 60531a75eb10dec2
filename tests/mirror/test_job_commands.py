"""Every command over a real mirror, each as a separate process: once, query, verify, report, restore."""

import subprocess
from pathlib import Path

import pytest

from bridge.mirror.jars import VARIABLE, spark_jars
from tests.mirror.deployment import deployed
from tests.mirror.end_to_end import numbered
from tests.tiers import SOAK

pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("archived_jvm")]

BACKENDS = ("memory", "kafka", "rabbitmq") if SOAK else ("memory",)
"""These commands read the mirror, so the backend makes no difference; a job takes half a minute of both cores."""


@pytest.mark.parametrize("backend", BACKENDS)
def test_restored_messages_are_the_same_and_the_report_shows_them(backend: str, tmp_path: Path) -> None:
    with deployed(backend, tmp_path) as place:
        place.publish("orders", numbered(40), "--key", "k", "--property", "a=b")
        place.once()
        options = ("--url", place.bridge.url, "--destination", "orders", "--to-destination", "again")
        assert place.mirror("restore", *options).returncode == 0
        place.once()
        shown = "SELECT message_id, message_key, properties['a'] a, body FROM messages WHERE destination = "
        before, after = (
            sorted(place.mirror("query", "--json", f"{shown}'{name}'").stdout.splitlines())
            for name in ("orders", "again")
        )
        assert before == after
        assert len(before) == 40
        assert place.mirror("report", "--html", str(place.folder / "report.html")).returncode == 0
        page = (place.folder / "report.html").read_text()
        assert "orders" in page
        assert "again" in page


def test_jars_of_another_release_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that an older release has filled lacks what this one calls."""
    for jar in spark_jars():
        if "openmessaging" not in jar.name:
            (tmp_path / jar.name).symlink_to(jar)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with deployed("memory", tmp_path) as place:
        done = subprocess.run(place.command(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "Spark lacks the mirror's own jar of this release: give it the jars that `oms-bridge mirror fetch-jars` prints."
    )
