"""The page of `mirror report`: one file that fetches nothing and runs nothing. Plots are SVG by Pygal. Pure."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import Comment, Element

import pygal
from pygal.style import Style
from rich.filesize import decimal

from bridge.cli.command import printable
from bridge.mirror.report import OTHERS, PERCENTILES, ByBar, Figures

_HEAD: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="content-security-policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>Mirror report</title><style>"""
_STYLE: Final = Path(__file__).with_name("report.css")
_COLOURS: Final = tuple(f"var(--s{number})" for number in range(6))
_SHADES: Final = ("var(--low)", "var(--mid)", "var(--high)")
_DAYS: Final = tuple(86_400 * 10**power for power in range(8))  # a clock may say anything
_LABELS: Final = 7
_TIMES: Final = (1, 10, 100, *(seconds * 1000 for seconds in (1, 10, 60, 600, 3600, 36_000, *_DAYS)))
"""Round times in ms, for the axis of durations."""
_EXPIRED: Final = "Expired: the expireTime had passed when this page was written. A consumer may have read them before."

Format = Callable[[float], str]
Series = Mapping[str, Sequence[float | None]]
"""By name, one value for each label; None: there is none."""


class Markup(str):
    """Text that is markup: `tag` escapes everything else."""

    __slots__ = ()


def tag(name: str, *inside: str, **attributes: str) -> Markup:
    """Return an element. `class_` is class. Text that could control a terminal or a browser is escaped."""
    given = "".join(f' {key.rstrip("_")}="{escape(printable(value))}"' for key, value in attributes.items())
    text = "".join(part if isinstance(part, Markup) else escape(printable(part)) for part in inside)
    return Markup(f"<{name}{given}>{text}</{name}>")


def page(figures: Figures) -> str:
    """Return the page as HTML."""
    body = tag(
        "body",
        tag("h1", "Mirror report"),
        tag("p", f"{figures.out} · last commit {_moment(figures.committed)}"),
        tag("p", f"Written {_moment(figures.made)}. All times are UTC."),
        _tiles(figures),
        tag("div", *(_plots(figures) if figures.totals else ()), class_="plots"),
        *_tables(figures),
    )
    return f"{_HEAD}{_STYLE.read_text('utf-8')}</style></head>{body}</html>\n"


def _tiles(figures: Figures) -> Markup:
    wrong = {
        "dead letters": sum(number for *_, number in figures.dead),
        "in quarantine": sum(number for *_, number in figures.bad),
        "gaps": len(figures.gaps),
    }
    tiles = {
        "messages": _count(sum(total.rows for total in figures.totals)),
        "of bodies": decimal(sum(total.bytes for total in figures.totals)),
        "as Parquet": decimal(figures.file_bytes),
        "files": _count(figures.files),
        **{name: _count(number) for name, number in wrong.items()},
    }
    if figures.behind is not None:
        tiles["offsets behind"] = _count(sum(figures.behind.values()))
    shown = (
        tag("div", tag("b", value, class_="bad" if wrong.get(name) else ""), tag("span", name), class_="tile")
        for name, value in tiles.items()
    )
    return tag("div", *shown, class_="tiles")


def _plots(figures: Figures) -> Iterable[Markup]:
    start, width, number = figures.bars
    each = _duration(width)
    times = [_moment(start + bar * width)[slice(10) if each.endswith("day") else slice(5, 16)] for bar in range(number)]
    series = {name: [values.get(bar, 0) for bar in range(number)] for name, values in figures.rows.items()}
    yield plot(f"Messages per {each} by destination", times, series, _count)
    series = {name: [values.get(bar, 0) for bar in range(number)] for name, values in figures.bytes.items()}
    yield plot(f"Bytes of bodies per {each} by destination", times, series, _size)
    largest = max(figures.sizes)
    names = ["empty", *(f"≥ {_size(1 << bits)}" for bits in range(largest))]
    series = {"messages": [figures.sizes.get(bits, 0) for bits in range(largest + 1)]}
    yield plot("Messages by size of body", names, series, _count)
    yield plot("Latency from born to stored", times, _percentiles(figures.to_stored, number), _duration)
    yield plot("Latency from stored to mirrored", times, _percentiles(figures.to_mirrored, number), _duration)


def _percentiles(by_bar: ByBar, number: int) -> Series:
    """Return milliseconds; less than 1 is drawn as 1, because the scale is logarithmic."""
    return {
        f"p{part * 100:g}": [max(1, by_bar[bar][place]) if bar in by_bar else None for bar in range(number)]
        for place, part in enumerate(PERCENTILES)
    }


def plot(title: str, labels: Sequence[str], series: Series, form: Format) -> Markup:
    """Return stacked bars, or for durations lines on a logarithmic scale, with the values as tooltips."""
    lines = form is _duration
    colours = _SHADES if lines else _COLOURS
    palette = ["var(--rest)" if name == OTHERS else colours[place] for place, name in enumerate(series)]
    style = Style(
        background="transparent", plot_background="transparent", foreground="var(--soft)", opacity="1",
        foreground_strong="var(--ink)", foreground_subtle="var(--line)", colors=palette, font_family="inherit",
        label_font_size=11, major_label_font_size=11, transition="0s",
    )  # fmt: skip
    every = max(1, math.ceil(len(labels) / _LABELS))
    config: dict[str, Any] = {
        "style": style, "js": (), "width": 720, "height": 230, "margin": 6, "spacing": 6, "show_legend": False,
        "x_labels": labels, "x_labels_major_every": every, "show_minor_x_labels": False, "truncate_label": -1,
        "value_formatter": lambda value: "" if value is None else form(value), "disable_xml_declaration": True,
        "dots_size": 2, "min_scale": 3, "max_scale": 6,
    }  # fmt: skip
    chart = pygal.StackedBar(**config)
    if lines:  # of logarithms: with Pygal's own logarithmic scale a line that is interrupted loses points
        ticks = _ticks([value for values in series.values() for value in values if value])
        marks = [{"value": math.log10(tick), "label": form(tick)} for tick in ticks]
        chart = pygal.Line(**config, y_labels=marks, range=(marks[0]["value"], marks[-1]["value"]))
    for name, values in series.items():
        points = [_point(name, *point, form) for point in zip(labels, values, strict=True)]
        chart.add(name, points, allow_interruptions=True)
    chart.add_xml_filter(_without_script)
    drawn = chart.render()
    keys = (
        tag("span", tag("i", style=f"background: {colour}"), name) for name, colour in zip(series, palette, strict=True)
    )
    legend = tag("div", *(keys if len(series) > 1 else ()), class_="legend")
    return tag("figure", tag("figcaption", title), legend, tag("div", Markup(drawn), class_="plot"))


def _without_script(svg: Element) -> Element:
    """Remove Pygal's script and what only it reads; the description of a value becomes its tooltip."""
    for parent in svg.iter():
        for child in list(parent):
            if child.tag == "desc" and child.get("class") == "value":
                child.tag = "title"
            elif child.tag in {"desc", "script", Comment}:
                parent.remove(child)
    return svg


def _ticks(values: Sequence[float]) -> Sequence[float]:
    """Return round times around these, in ms."""
    first = bisect_right(_TIMES, min(values, default=1)) - 1
    last = bisect_left(_TIMES, max(values, default=1))
    return _TIMES[min(first, len(_TIMES) - 2) : max(last, first + 1) + 1]


def _point(name: str, label: str, value: float | None, form: Format) -> dict[str, object] | None:
    if not value:
        return None
    text = printable(f"{label}\n{name}: {form(value)}")
    return {"value": math.log10(value) if form is _duration else value, "formatter": lambda _: text}


def _tables(figures: Figures) -> Iterable[Markup]:
    rows = [
        (
            *(total.destination, _count(total.rows), decimal(total.bytes), decimal(total.bytes // total.rows)),
            *(_moment(total.first), _moment(total.last), _count(total.expiring), _count(total.expired)),
        )
        for total in figures.totals
    ]
    names = "destination|messages|bytes|mean size|first stored|last stored|expiring|expired"
    yield from _table("Destinations", _EXPIRED if any(total.expiring for total in figures.totals) else "", names, rows)
    yield from _table("Dead letters", "", "destination|group|reason|messages", figures.dead)
    about = "Offsets that the backend dropped before the mirror read them."
    gaps = [
        (gap.log, gap.start, *(("unknown", "") if gap.end is None else (gap.end - 1, gap.end - gap.start)))
        for gap in figures.gaps
    ]
    yield from _table("Gaps", about, "log|first|last|offsets", gaps)
    if figures.behind is not None:
        yield from _table("Not mirrored yet", "", "log|offsets", sorted(figures.behind.items()))
    yield from _table("Quarantine", "Records that could not be read.", "destination|error|records", figures.bad)


def _table(title: str, about: str, names: str, rows: Sequence[Sequence[object]]) -> Iterable[Markup]:
    """Yield a heading, and a table in which every column but those of text is aligned as numbers."""
    yield tag("h2", title)
    if not rows:
        yield tag("p", "None.")
        return
    yield tag("p", about)
    head = names.split("|")
    text = {"destination", "group", "reason", "log", "error"}
    styles = ["" if name in text else "number" for name in head]
    cells = [[_count(cell) if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    drawn = (
        tag("tr", *(tag(kind, cell, class_=style) for cell, style in zip(row, styles, strict=True)))
        for kind, row in [("th", head), *(("td", row) for row in cells)]
    )
    yield tag("div", tag("table", *drawn), class_="wide")


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _size(number: float) -> str:
    return decimal(int(number))


def _duration(milliseconds: float) -> str:
    """Milliseconds below a second, then seconds, minutes and hours, then days."""
    for unit, length in (("day", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= length:
            return f"{milliseconds / length:.3g} {unit}"
    return f"{milliseconds:.3g} ms"


def _moment(milliseconds: int) -> str:
    """Return a time in UTC, to the second."""
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}"
