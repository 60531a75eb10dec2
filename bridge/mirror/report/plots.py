"""Plots as inline SVG: colours come from the page's style, so that they follow light and dark. Pure."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from bridge.mirror.report.markup import Markup, joined, tag
from bridge.mirror.report.scale import Format, byte_ticks, count, duration, durations, size, ticks

_WIDTH: Final = 720
_HEIGHT: Final = 230
_LEFT: Final = 62
_RIGHT: Final = 12
_TOP: Final = 10
_BOTTOM: Final = 24
_FLOOR: Final = _HEIGHT - _BOTTOM
_LABEL: Final = 92
"""Width of a label below the plot."""


class Unit(NamedTuple):
    """What a plot of bars measures."""

    form: Format
    ticks: Callable[[float], list[float]]


ROWS: Final = Unit(count, ticks)
BYTES: Final = Unit(size, byte_ticks)


class Series(NamedTuple):
    """One colour of a plot."""

    name: str
    style: str
    """A class of the page's style: `s0`."""
    values: Sequence[float | None]
    """One for each label; None: there is none."""


def bars(title: str, labels: Sequence[str], series: Sequence[Series], unit: Unit) -> Markup:
    """Return bars, the series upon one another."""
    sums = [sum(values) for values in zip(*([v or 0 for v in s.values] for s in series), strict=True)]
    form, marks = unit.form, unit.ticks(max(sums, default=0))
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(labels))
    gap = 1.0 if step > 4 else 0.0  # noqa: PLR2004 - thinner than that the gaps are most of what one sees
    base, drawn = [0.0] * len(labels), []
    for one in series:
        path = []
        for place, value in enumerate(one.values):
            if value:
                low, high = _y(base[place] / marks[-1]), _y((base[place] + value) / marks[-1])
                path.append(f"M{_LEFT + place * step:.1f} {low:.1f}V{high:.1f}h{step - gap:.1f}V{low:.1f}z")
                base[place] += value
        drawn.append(tag("path", d="".join(path), class_=f"fill {one.style}"))
    axis = [(form(mark), mark / marks[-1]) for mark in marks]
    return _figure(title, labels, series, [*_grid(axis, labels, step), *drawn, *_hovers(labels, series, form, step)])


def lines(title: str, labels: Sequence[str], series: Sequence[Series]) -> Markup:
    """Return lines of times in ms over a logarithmic scale; what is below 1 ms is drawn there."""
    known = [max(value, 1.0) for one in series for value in one.values if value is not None]
    form, marks = duration, durations(min(known, default=1), max(known, default=1))
    low, high = math.log10(marks[0]), math.log10(marks[-1])
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(labels))
    drawn = []
    for one in series:
        points = [
            None
            if value is None
            else (_LEFT + (n + 0.5) * step, _y((math.log10(max(value, 1.0)) - low) / (high - low)))
            for n, value in enumerate(one.values)
        ]
        drawn.append(tag("path", d=_path(points), class_=f"line {one.style}"))
        drawn += [
            tag("circle", cx=f"{p[0]:.1f}", cy=f"{p[1]:.1f}", r=2, class_=f"fill {one.style}") for p in points if p
        ]
    axis = [(form(mark), (math.log10(mark) - low) / (high - low)) for mark in marks]
    return _figure(title, labels, series, [*_grid(axis, labels, step), *drawn, *_hovers(labels, series, form, step)])


def _path(points: Sequence[tuple[float, float] | None]) -> str:
    """Draw through neighbours; where one is missing the line is broken."""
    path, drawing = [], False
    for point in points:
        if point is not None:
            path.append(f"{'L' if drawing else 'M'}{point[0]:.1f} {point[1]:.1f}")
        drawing = point is not None
    return "".join(path)


def _y(part: float) -> float:
    return _FLOOR - part * (_FLOOR - _TOP)


def _grid(axis: Sequence[tuple[str, float]], labels: Sequence[str], step: float) -> Iterator[Markup]:
    for text, part in axis:
        y = f"{_y(part):.1f}"
        yield tag("path", d=f"M{_LEFT} {y}H{_WIDTH - _RIGHT}", class_="grid")
        yield tag("text", text, x=_LEFT - 6, y=y, dy="0.32em", text_anchor="end")
    every = max(1, math.ceil(_LABEL / step))
    for place in range(0, len(labels), every):
        yield tag("text", labels[place], x=f"{_LEFT + (place + 0.5) * step:.1f}", y=_FLOOR + 16, text_anchor="middle")


def _hovers(labels: Sequence[str], series: Sequence[Series], form: Format, step: float) -> Iterator[Markup]:
    """Yield what shows all values of one place under the pointer, the upmost first."""
    for place, label in enumerate(labels):
        told = [(one.name, one.values[place]) for one in reversed(series)]
        text = "\n".join([label, *(f"{name}: {form(value)}" for name, value in told if value)])
        x = f"{_LEFT + place * step:.1f}"
        height = _FLOOR - _TOP
        yield tag("rect", tag("title", text), x=x, y=_TOP, width=f"{step:.1f}", height=height, class_="hover")


def _figure(title: str, labels: Sequence[str], series: Sequence[Series], drawn: Sequence[Markup]) -> Markup:
    if not labels:
        return tag("figure", tag("figcaption", title), tag("p", "Nothing yet.", class_="none"))
    keys = [tag("span", tag("i", class_=f"key {one.style}"), one.name) for one in series]
    legend = tag("div", *keys, class_="legend") if len(series) > 1 else Markup()
    drawing = tag("svg", *drawn, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=title)
    return tag("figure", tag("figcaption", title), legend, tag("div", joined(drawing), class_="plot"))
