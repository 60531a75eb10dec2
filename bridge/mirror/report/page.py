"""The page: one file that asks for nothing else. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from bridge.mirror.read import shown
from bridge.mirror.report.figures import OTHERS, PERCENTILES, Figures, Total
from bridge.mirror.report.markup import Markup, tag
from bridge.mirror.report.plots import BYTES, ROWS, Series, bars, lines
from bridge.mirror.report.scale import count, duration, moment, size
from bridge.mirror.report.style import STYLE

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""Whatever might slip through, nothing runs and nothing is fetched."""
_SHADES: Final = ("low", "mid", "high")


def page(figures: Figures) -> str:
    """Return the page as HTML."""
    head = tag(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="content-security-policy" content="{_POLICY}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", "Mirror report"),
        tag("style", Markup(STYLE)),
    )
    body = tag(
        "body",
        tag("h1", "Mirror report"),
        tag("p", f"{shown(figures.out)} · last commit {moment(figures.catalogue.committed)}", class_="where"),
        tag("p", f"Made {moment(figures.made)}. All times are UTC."),
        _tiles(figures),
        tag("div", *_plots(figures), class_="plots"),
        *_totals(figures),
        *_dead(figures),
        *_gaps(figures),
        *_behind(figures),
        *_bad(figures),
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en")


def _tiles(figures: Figures) -> Markup:
    catalogue = figures.catalogue
    dead, bad = sum(d.rows for d in figures.dead), sum(b.rows for b in figures.bad)
    tiles = [
        ("messages", count(sum(t.rows for t in figures.totals)), False),
        ("of bodies", size(sum(t.bytes for t in figures.totals)), False),
        ("as Parquet", size(sum(f.bytes for f in catalogue.files.values())), False),
        ("files", count(len(catalogue.files)), False),
        ("dead letters", count(dead), dead > 0),
        ("in quarantine", count(bad), bad > 0),
        ("gaps", count(len(figures.gaps)), len(figures.gaps) > 0),
    ]
    if figures.behind is not None:
        tiles.append(("offsets behind", count(sum(figures.behind.values())), False))
    shown = (
        tag("div", tag("b", value, class_="bad" if bad else None), tag("span", name), class_="tile")
        for name, value, bad in tiles
    )
    return tag("div", *shown, class_="tiles")


def _plots(figures: Figures) -> Iterable[Markup]:
    if figures.times is None:
        return
    labels = [figures.times.label(piece) for piece in range(figures.times.number)]
    width = duration(figures.times.width)
    yield bars(f"Messages per {width} by destination", labels, _series(figures.rows, len(labels)), ROWS)
    yield bars(f"Bytes of bodies per {width} by destination", labels, _series(figures.bytes, len(labels)), BYTES)
    largest = max(figures.sizes)
    sizes = [figures.sizes.get(bits, 0) for bits in range(largest + 1)]
    # a body of `bits` bits has at least 2 ** (bits - 1) bytes
    names = ["empty", *(f"≥ {size(1 << bits)}" for bits in range(largest))]
    yield bars("Messages by size of body", names, [Series("messages", "s0", sizes)], ROWS)
    yield lines("Latency from born to stored", labels, _percentiles(figures.latency.stored, len(labels)))
    title = "Latency from stored to mirrored"
    yield lines(title, labels, _percentiles(figures.latency.mirrored, len(labels)))


def _series(by_name: Mapping[str, Mapping[int, int]], number: int) -> list[Series]:
    styles = {name: "rest" if name == OTHERS else f"s{place}" for place, name in enumerate(by_name)}
    return [Series(n, styles[n], [values.get(p, 0) for p in range(number)]) for n, values in by_name.items()]


def _percentiles(by_piece: Mapping[int, Sequence[float]], number: int) -> list[Series]:
    return [
        Series(f"p{part * 100:g}", style, [by_piece[p][place] if p in by_piece else None for p in range(number)])
        for place, (part, style) in enumerate(zip(PERCENTILES, _SHADES, strict=True))
    ]


def _totals(figures: Figures) -> Iterable[Markup]:
    yield tag("h2", "Destinations")
    if any(total.expiring for total in figures.totals):
        yield tag(
            "p",
            "Expired: the expireTime had passed when this page was made. Whether a consumer was faster,"
            " a mirror cannot know.",
        )
    names = ["destination", "messages", "bytes", "mean size", "first stored", "last stored", "expiring", "expired"]
    yield _table(names, [_total(total) for total in figures.totals], numbers=range(1, 8))


def _total(total: Total) -> list[str]:
    mean = size(total.bytes / total.rows)
    first, last = moment(total.first), moment(total.last)
    return [
        *(total.destination, count(total.rows), size(total.bytes), mean, first, last),
        *(count(total.expiring), count(total.expired)),
    ]


def _dead(figures: Figures) -> Iterable[Markup]:
    yield tag("h2", "Dead letters")
    rows = [[d.source, d.group, d.reason, count(d.rows)] for d in figures.dead]
    yield _table(["destination", "group", "reason", "messages"], rows, numbers=[3])


def _gaps(figures: Figures) -> Iterable[Markup]:
    yield tag("h2", "Gaps")
    yield tag("p", "Offsets that the backend had dropped before the mirror came to them.")
    rows = [
        [
            gap.log,
            str(gap.start),
            "not known" if gap.end is None else str(gap.end - 1),
            "" if gap.end is None else count(gap.end - gap.start),
        ]
        for gap in figures.gaps
    ]
    yield _table(["log", "first", "last", "offsets"], rows, numbers=[1, 2, 3])


def _behind(figures: Figures) -> Iterable[Markup]:
    if figures.behind is None:
        return
    yield tag("h2", "Not mirrored yet")
    rows = [[log, count(number)] for log, number in sorted(figures.behind.items())]
    yield _table(["log", "offsets"], rows, numbers=[1])


def _bad(figures: Figures) -> Iterable[Markup]:
    yield tag("h2", "Quarantine")
    yield tag("p", "Records that could not be read; their bytes are kept.")
    yield _table(
        ["destination", "error", "records"], [[b.destination, b.error, count(b.rows)] for b in figures.bad], [2]
    )


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], numbers: Iterable[int]) -> Markup:
    if not rows:
        return tag("p", "None.", class_="none")
    styles = ["number" if place in set(numbers) else None for place in range(len(names))]
    head = tag("tr", *(tag("th", name, class_=style) for name, style in zip(names, styles, strict=True)))
    body = (
        tag("tr", *(tag("td", cell, class_=style) for cell, style in zip(row, styles, strict=True))) for row in rows
    )
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="wide")
