"""`mirror report`: the figures from a real mirror, and the page that the command writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from bridge.cli.program import main
from bridge.errors import CannotStart
from bridge.message import Message
from bridge.mirror.manifest import Gap
from bridge.mirror.report import figures
from bridge.mirror.report.figures import OTHERS, Bad, Dead, Figures, Total, count
from bridge.mirror.sink.files import Files
from tests.mirror.made import NOON, Batch, make_mirror, message, some
from tests.mirror.made import Bad as BadRow

MINUTE = 60_000
EVIL = "<script>alert(1)</script>"


def counted(spark: SparkSession, out: Path, now: int = NOON, **given: object) -> Figures:
    return count(spark, Files(spark, str(out)), given.get("bounds"), now)  # type: ignore[arg-type]  # Ranges or None


def dead(number: int, **properties: str) -> Message:
    said = {f"oms-dead-letter-{name}": value for name, value in properties.items()}
    return message(number, "orders.dlq", properties=said)


def test_the_figures(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "SERIES", 2)
    monkeypatch.setattr(figures, "LISTED", 3)
    late = NOON + 10 * MINUTE
    rows = {
        **some(4),
        ("orders/0", 4): message(4, store_timestamp=late, expire_time=late, body=b""),
        ("orders/0", 5): message(5, expire_time=NOON + 40 * MINUTE),
        ("orders/0", 6): message(6, expire_time=1),  # before it was born: never
        **some(3, EVIL),
        **some(2, "b"),
        **some(1, "c"),
        ("d/0", 0): message(0, "d", store_timestamp=NOON + MINUTE, delay_time=MINUTE, body=b"x" * 9000),
        ("orders.dlq/0", 0): dead(0, source="orders", group="g", reason="max-deliveries"),
        ("orders.dlq/0", 1): dead(1, source="orders", group="g", reason="max-deliveries"),
        ("orders.dlq/0", 2): dead(2),
        ("c/0", 1): BadRow("no text", b"\xff", "c"),
    }
    make_mirror(tmp_path, [Batch(rows, gaps=[Gap("b/0", 2, 5)], mirrored=NOON + 11 * MINUTE)])
    found = counted(spark, tmp_path, NOON + 20 * MINUTE, bounds={"orders/0": (0, 9), "b/0": (7, 9), "c/0": (0, 2)})

    orders = Total("orders", 7, 4 * 6 + 0 + 6 + 6, NOON + 5, late, 2, 1)
    assert found.totals[0] == orders
    assert [(t.destination, t.rows) for t in found.totals] == [
        ("orders", 7),
        (EVIL, 3),
        ("b", 2),
        (f"{OTHERS} (2)", 2),
    ]
    assert found.times is not None
    assert (found.times.start, found.times.width, found.times.number) == (NOON, MINUTE, 11)
    assert found.rows == {"orders": {0: 6, 10: 1}, EVIL: {0: 3}, OTHERS: {0: 3, 1: 1}}
    assert found.bytes[OTHERS] == {0: 18, 1: 9000}
    assert found.sizes == {0: 1, 3: 12, 14: 1}
    assert found.latency.stored[0] == [5, 5, 5]
    assert 1 not in found.latency.stored, "it waited on purpose"
    assert found.latency.stored[10] == [late - NOON - 4000] * 3
    assert found.latency.mirrored[10] == [MINUTE] * 3
    assert found.dead == [Dead("orders", "g", "max-deliveries", 2), Dead("orders.dlq", "", "", 1)]
    assert found.bad == [Bad("c", "no text", 1)]
    assert found.behind == {"orders/0": 2, "b/0": 2}


def test_a_mirror_without_a_message_and_no_mirror(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="There is no mirror"):
        counted(spark, tmp_path)
    make_mirror(tmp_path, [Batch({}, ranges={"orders/0": (0, 1)})])
    found = counted(spark, tmp_path)
    assert (found.times, found.totals, found.rows, found.behind) == (None, [], {}, None)


def test_the_command(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def joined(_name: str) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("bridge.mirror.session.session", joined)
    make_mirror(tmp_path / "mirror", [Batch(some(3) | some(3, EVIL))])
    html = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["mirror", "report", "--out", str(tmp_path / "mirror"), "--html", str(html)])
    assert (done.exit_code, done.stdout) == (0, f"written {html}\n")
    text = html.read_text("utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script" not in text
