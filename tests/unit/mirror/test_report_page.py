"""The page as HTML and SVG: well-formed, self-contained, and harmless whatever messages are called."""

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from bridge.mirror.manifest import File, Gap, Manifest
from bridge.mirror.report import scale
from bridge.mirror.report.figures import Bad, Dead, Figures, Latency, Total
from bridge.mirror.report.markup import joined, tag
from bridge.mirror.report.page import page
from bridge.mirror.report.plots import ROWS, Series, bars, lines
from bridge.mirror.sink.catalogue import Catalogue

NOON = 1_763_726_400_000
EVIL = "<script>alert(1)</script>\"'&\x1b[2J\u202e"


def figures(**fields: object) -> Figures:
    catalogue = Catalogue()
    added = (File("data/x.parquet", 5, 4096),)
    catalogue.add(Manifest("q/000000000000", NOON, {"a/0": (0, 5)}, (Gap(EVIL, 5, 9), Gap("b", 1, None)), added))
    made = Figures(
        out=f"file:/{EVIL}",
        made=NOON,
        catalogue=catalogue,
        behind={EVIL: 7},
        totals=[Total(EVIL, 5, 500, NOON, NOON + 60_000, 2, 1)],
        times=scale.times(NOON, NOON + 60_000),
        rows={EVIL: {0: 3, 1: 2}},
        bytes={EVIL: {0: 300, 1: 200}},
        sizes={0: 1, 7: 4},
        latency=Latency({0: [1.0, 2.0, 3.0]}, {0: [-5.0, 2000.0, 3e9]}),
        dead=[Dead(EVIL, EVIL, EVIL, 3)],
        bad=[Bad(EVIL, EVIL, 4)],
    )
    return made._replace(**fields)  # type: ignore[arg-type]  # by name, as the test has them


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


def test_whatever_others_wrote_is_text() -> None:
    seen = Seen(page(figures()))
    assert "script" not in seen.tags
    assert not {name for name in seen.attributes if name.startswith("on") or name in {"href", "src", "style"}}
    shown = "<script>alert(1)</script>\"'&\\x1b[2J\\u202e"
    places = [text for text in seen.text if shown in text]
    assert len(places) >= 9  # head line, legends, hovers, and every table
    assert "\x1b" not in page(figures())
    assert "\u202e" not in page(figures())


def test_nothing_is_fetched_and_nothing_could_run() -> None:
    text = page(figures(out="file:/srv/mirror"))
    assert "default-src 'none'" in text
    assert re.findall(r"url\(|@import|https?://|<link|<script|<img|<iframe", text) == []


def test_a_secret_in_the_path_is_not_shown() -> None:
    text = page(figures(out="s3a://key:hunter2@bucket/mirror"))
    assert "hunter2" not in text
    assert "bucket/mirror" in text


def test_every_plot_is_well_formed() -> None:
    drawn = re.findall(r"<svg.*?</svg>", page(figures()), re.DOTALL)
    assert len(drawn) == 5
    for svg in drawn:
        ET.fromstring(svg)  # noqa: S314 - ours
        assert "nan" not in svg.lower()


def test_an_empty_mirror_has_a_page() -> None:
    nothing = figures(
        totals=[], times=None, rows={}, bytes={}, sizes={}, latency=Latency({}, {}), dead=[], bad=[], behind=None
    )
    text = page(nothing)
    assert "<svg" not in text
    assert "Not mirrored yet" not in text


def test_bars_stand_upon_one_another() -> None:
    svg = bars("t", ["a", "b"], [Series("one", "s0", [1, 0]), Series("two", "s1", [3, 2])], ROWS)
    below, above = re.findall(r'<path d="([^"]*)" class="fill', svg)
    assert below.count("M") == 1
    assert above.count("M") == 2
    base, top = (float(number) for number in re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", above)[0])
    floor, joint = (float(number) for number in re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", below)[0])
    assert (floor - joint) * 3 == pytest.approx(base - top, abs=0.3)
    assert joint == base


def test_a_line_is_broken_where_there_is_nothing() -> None:
    svg = lines("t", ["a", "b", "c", "d"], [Series("p50", "low", [10, 100, None, 1])])
    (path,) = re.findall(r'<path d="([^"]*)" class="line', svg)
    assert re.sub(r"[\d. ]", "", path) == "MLM"


def test_text_is_escaped_and_markup_is_not() -> None:
    assert tag("p", "<&", tag("b", '"'), class_='"x') == '<p class="&quot;x">&lt;&amp;<b>&quot;</b></p>'
    assert joined("<", tag("i")) == "&lt;<i></i>"


@pytest.mark.parametrize(
    ("largest", "expected"),
    [(0, [0, 1]), (3, [0, 1, 2, 3]), (450, [0, 200, 400, 600]), (97, [0, 50, 100]), (4, [0, 1, 2, 3, 4])],
)
def test_axes_are_round(largest: float, expected: list[float]) -> None:
    assert scale.ticks(largest) == expected


def test_axes_of_bytes_are_round_in_their_unit() -> None:
    assert [scale.size(tick) for tick in scale.byte_ticks(900 * 1024)] == ["0 B", "500 KiB", "1,000 KiB"]


@pytest.mark.parametrize("largest", [0.1, 1, 7, 99, 1e3, 5.5e5, 1e12])
def test_every_axis_holds_its_largest(largest: float) -> None:
    assert scale.ticks(largest)[-1] >= largest
    assert scale.byte_ticks(largest)[-1] >= largest
    assert 2 <= len(scale.ticks(largest)) <= 7


def test_times_of_an_axis_hold_both_ends() -> None:
    assert [scale.duration(t) for t in scale.durations(3, 700)] == ["1 ms", "10 ms", "100 ms", "1 s"]
    assert [scale.duration(t) for t in scale.durations(1, 1)] == ["1 ms", "10 ms"]
    for extreme in (1.0, 1e12, 2.5e14):
        low, *_, high = scale.durations(extreme, extreme)
        assert low <= extreme <= high
        assert low < high


@pytest.mark.parametrize("hours", [0, 1, 5, 24, 200, 5000, 80_000, 5_000_000, 70_000_000])
def test_pieces_of_time_hold_first_and_last_and_are_few(hours: int) -> None:
    last = NOON + hours * 3_600_000
    spans = scale.times(NOON, last)
    assert spans.start <= NOON
    assert spans.start + (spans.number - 1) * spans.width <= last < spans.start + spans.number * spans.width
    assert spans.number <= scale.MOST


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [(0, "0 ms"), (1.234, "1.23 ms"), (999, "999 ms"), (1000, "1 s"), (90_000, "1.5 min"), (86_400_000, "1 d")],
)
def test_durations(milliseconds: float, said: str) -> None:
    assert scale.duration(milliseconds) == said
