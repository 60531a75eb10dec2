"""`mirror report`: figures of a table, and a page that is self-contained and harmless whatever messages are called."""

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from bridge.cli.program import main
from bridge.errors import CannotStart
from bridge.message import Message
from bridge.mirror import report
from bridge.mirror.offsets import Gap
from bridge.mirror.report import BARS, OTHERS, Bars, Figures, Total, count
from bridge.mirror.report_page import page, plot
from tests.mirror.made import NOON, Bad, Batch, make_mirror, message, some

MINUTE = 60_000
LATE = NOON + 10 * MINUTE
EVIL = "<script>alert(1)</script>\"'&\x1b[2J\u202e"
HARMLESS = "<script>alert(1)</script>\"'&\\x1b[2J\\u202e"


def dead(number: int, **properties: str) -> Message:
    given = {f"oms-dead-letter-{name}": value for name, value in properties.items()}
    return message(number, "orders.dlq", properties=given)


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Figures:
    monkeypatch.setattr(report, "SERIES", 2)
    monkeypatch.setattr(report, "LISTED", 3)
    rows = {
        **some(4),
        ("orders/0", 4): message(4, store_timestamp=LATE, expire_time=LATE, body=b""),
        ("orders/0", 5): message(5, expire_time=NOON + 40 * MINUTE),
        ("orders/0", 6): message(6, expire_time=1),  # before it was born: never
        **some(3, EVIL),
        **some(2, "b"),
        **some(1, "c"),
        ("d/0", 0): message(0, "d", store_timestamp=NOON + MINUTE, delay_time=MINUTE, body=b"x" * 9000),
        ("orders.dlq/0", 0): dead(0, source="orders", group=EVIL, reason="max-deliveries"),
        ("orders.dlq/0", 1): dead(1, source="orders", group=EVIL, reason="max-deliveries"),
        ("orders.dlq/0", 2): dead(2),
        ("c/0", 1): Bad(EVIL, b"\xff", "c"),
    }
    gaps = [Gap(EVIL, 2, 5), Gap("b/0", 1, None)]
    make_mirror(tmp_path / EVIL[:8], [Batch(rows, gaps=gaps, mirrored=NOON + 11 * MINUTE)])
    bounds = {"orders/0": (0, 9), EVIL: (7, 9), "c/0": (0, 2)}
    return count(str(tmp_path / EVIL[:8]), bounds, NOON + 20 * MINUTE)


def test_the_figures(found: Figures) -> None:
    assert found.totals[0] == Total("orders", 7, 4 * 6 + 0 + 6 + 6, NOON + 5, LATE, 2, 1)
    shown = [(total.destination, total.rows) for total in found.totals]
    assert shown == [("orders", 7), (EVIL, 3), ("b", 2), (OTHERS, 2)]
    assert found.bars == Bars(NOON, MINUTE, 11)
    assert found.rows == {"orders": {0: 6, 10: 1}, EVIL: {0: 3}, OTHERS: {0: 3, 1: 1}}
    assert found.bytes[OTHERS] == {0: 18, 1: 9000}
    assert found.sizes == {0: 1, 3: 12, 14: 1}
    assert found.to_stored[0] == [5, 5, 5]
    assert 1 not in found.to_stored, "it waited on purpose"
    assert found.to_stored[10] == [LATE - NOON - 4000] * 3
    assert found.to_mirrored[10] == [MINUTE] * 3
    assert found.dead == [("orders", EVIL, "max-deliveries", 2), ("orders.dlq", "", "", 1)]
    assert found.bad == [("c", EVIL, 1)]
    assert found.behind == {"orders/0": 2, EVIL: 2}
    assert (found.committed, found.files, len(found.gaps)) == (NOON + 11 * MINUTE, 2, 2)


class Seen(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_shows_what_others_wrote_as_text_and_loads_nothing(found: Figures) -> None:
    text = page(found._replace(out="s3a://bucket/mirror"))
    seen = Seen(text)
    assert "script" not in seen.tags
    assert not {name for name in seen.attributes if name.startswith("on") or name in {"href", "src"}}
    assert len([part for part in seen.text if HARMLESS in part]) >= 8  # legends, tooltips, every table
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "default-src 'none'" in text
    assert re.findall(r"url\(|@import|<link|<script|<img|<iframe|https?://(?!www.w3.org/)", text) == []
    assert "Not mirrored yet" in text
    drawn = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawn) == 5
    for svg in drawn:
        ET.fromstring(svg)  # noqa: S314 - ours
        assert "nan" not in svg.lower()


def test_a_plot_has_the_values_as_tooltips_and_a_line_is_broken_without_one(found: Figures) -> None:
    text = page(found)
    assert ">11-21 12:00\norders: 6</title>" in text
    assert ">11-21 12:10\np99: 1 min</title>" in text
    assert text.count("var(--rest)") > 2  # all others
    labels = [f"11-21 12:0{minute}" for minute in range(5)]
    paths = re.findall(r'<path d="([^"]*)" class="line reactive', str(latency(labels, [10, 100, None, 1, 5])))
    assert [re.sub(r"[^ML]", "", path) for path in paths] == ["ML", "ML"]
    assert "10 ms" in str(latency(labels, [10] * 5))
    assert latency(labels, [1e12, 2e14, 1, 1, 1])  # a clock may say anything


def latency(labels: list[str], values: list[float | None]) -> str:
    from bridge.mirror.report_page import _duration  # noqa: PLC0415 - what makes a plot one of durations

    return plot("t", labels, {"p50": values}, _duration)


def test_parts_of_time_hold_first_and_last_and_are_few() -> None:
    for hours in (0, 1, 5, 24, 200, 5000, 80_000, 5_000_000, 70_000_000):
        last = NOON + hours * 3_600_000
        start, width, number = report._bars([Total("a", 1, 1, NOON, last, 0, 0)])
        assert start <= NOON
        assert start + (number - 1) * width <= last < start + number * width
        assert number <= BARS


def test_the_command_on_an_empty_mirror_and_on_none(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="There is no mirror"):
        count(str(tmp_path), None, NOON)
    make_mirror(tmp_path / "mirror", [Batch({}, ranges={"orders/0": (0, 1)})])
    html = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["mirror", "report", "--out", str(tmp_path / "mirror"), "--html", str(html)])
    assert (done.exit_code, done.stdout) == (0, f"written {html}\n")
    assert "<svg" not in html.read_text("utf-8")
    assert "Not mirrored yet" not in html.read_text("utf-8")
