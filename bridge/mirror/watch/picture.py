"""The state as a person reads it. Pure: lines of text for a width, and the summary of a run that ended.

Names come from brokers and from whoever wrote to them: they are `Text`, never markup, without control characters.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from rich.cells import cell_len, chop_cells
from rich.text import Text

from bridge.mirror.sources.ranges import told
from bridge.mirror.watch.state import Condition, State
from bridge.mirror.watch.status import About
from bridge.mirror.watch.words import UNICODE, Glyphs, age, clean, cropped, many, seconds, size

WORST: Final = 5
"""Logs whose lag is shown."""

_VALUE: Final = 12
_NAME: Final = 12
_NAMED: Final = 10
_REASON_LINES: Final = 3
_SELDOM: Final = ("restarts", "not mirrored")
"""Counts that are not shown while they are 0."""
_SECOND: Final = 1000
"""In ms."""


_SHOWN: Final[dict[Condition, tuple[str, str]]] = {
    "starting": ("starting", "cyan"),
    "running": ("running", "green"),
    "waiting": ("waiting for the backend", "yellow"),
    "stopped": ("stopped", "red"),
}
"""Words and colour of each."""


def picture(state: State, about: About, now: int, width: int, glyphs: Glyphs = UNICODE) -> Text:
    """Draw the state in lines of at most `width` cells (≥ 40). `now` in ms since 1970."""
    return Text("\n", no_wrap=True, overflow="crop").join(_Drawing(state, about, now, width, glyphs).lines())


def summary(state: State, now: int, glyphs: Glyphs = UNICODE) -> str:
    """Say what a run has done, in one or a few lines without an end of line."""
    rows = state.rows
    areas = (
        many(rows["data"], "message"),
        many(rows["dead-letters"], "dead letter"),
        f"{rows['quarantine']:,} quarantined",
    )
    lines = [
        f"{many(state.total, 'row')} mirrored in {many(state.batches, 'batch')} and {age(now - state.since)}",
        f"{', '.join(areas)}; {many(state.files, 'file')}, {size(state.bytes)}",
    ]
    if state.gap_count:
        lines.append(f"{many(state.gap_count, 'gap')}: {told(state.gaps)}")
    if state.unmirrored:
        lines.append(f"{many(len(state.unmirrored), 'destination')} not mirrored")
        lines += [f"{name}: {why}" for name, why in islice(state.unmirrored.items(), _NAMED)]
    return "\n".join(clean(line, glyphs) for line in lines)


class _Drawing(NamedTuple):
    state: State
    about: About
    now: int
    width: int
    glyphs: Glyphs

    def lines(self) -> Iterator[Text]:
        yield from self._head()
        yield self._rows()
        yield from self._lag()
        yield self._commit()
        yield from self._counts()
        if self.state.gaps:
            yield self._cropped(f"gone unread: {told(self.state.gaps[-1:])}", self.width, "red")

    def _head(self) -> Iterator[Text]:
        words, colour = _SHOWN[self.state.condition]
        since = self.state.waiting.when if self.state.waiting else self.state.since
        yield Text.assemble(
            (f"{self.glyphs.dot} {words}", f"bold {colour}"), (f"{self.glyphs.between}{age(self.now - since)}", "dim")
        )
        arrow = f" {self.glyphs.arrow} "
        room = self.width - cell_len(arrow)
        out = self._cropped(self.about.out, max(room // 2, room - cell_len(self.about.backend)))
        yield Text.assemble(self._cropped(self.about.backend, room - out.cell_len), (arrow, "dim"), out)
        if reason := self.state.reason:
            yield from _wrapped(clean(reason, self.glyphs), self.width, colour)

    def _rows(self) -> Text:
        line = self._line("rows", f"{self.state.total:,}", f"{self.state.speed:,.0f}/s")
        room = self.width - line.cell_len - 2
        if room > 0 and self.state.speeds:
            line.append("  ").append(_sparkline(self.state.speeds[-room:], self.glyphs.bars), "cyan")
        return line

    def _lag(self) -> Iterator[Text]:
        state = self.state
        if (behind := state.behind) is None:
            yield self._line("lag", "?", "not known yet")
            return
        parts = [many(len(state.lag or ()), "log")] if behind else []
        if behind and state.speed:
            parts.append(f"{age(int(behind / state.speed * _SECOND))} at this speed")
        yield self._line("lag", f"{behind:,}", *parts)
        for log, rows in state.worst(WORST):
            line = self._line("", f"{rows:,}").append("  ")
            yield line.append(self._cropped(log, self.width - line.cell_len))

    def _commit(self) -> Text:
        if (last := self.state.last) is None:
            return self._line("last commit", "none yet")
        phases = [f"{phase} {seconds(took)}" for phase, took in last.milliseconds.items()]
        return self._line(
            "last commit",
            f"{age(self.now - last.committed)} ago",
            many(sum(last.rows.values()), "row"),
            many(last.files, "file"),
            size(last.bytes),
            f"in {seconds(sum(last.milliseconds.values()))}",
            ", ".join(phases),
        )

    def _counts(self) -> Iterator[Text]:
        rows = self.state.rows
        counts = {
            "quarantined": (rows["quarantine"], "yellow"),
            "gaps": (self.state.gap_count, "red"),
            "dead letters": (rows["dead-letters"], "yellow"),
            "restarts": (self.state.restarts, "yellow"),
            "not mirrored": (len(self.state.unmirrored), "yellow"),
        }
        line = Text()
        for name, (count, colour) in counts.items():
            if not count and name in _SELDOM:
                continue
            part = Text.assemble((f"{name} ", "dim"), (f"{count:,}", colour if count else "dim"))
            if line and line.cell_len + len(self.glyphs.between) + part.cell_len > self.width:
                yield line
                line = Text()
            line = Text.assemble(line, (self.glyphs.between, "dim"), part) if line else part
        yield line

    def _line(self, name: str, value: str, *rest: str) -> Text:
        """Name, value, and as much of the rest as fits."""
        line = Text.assemble((name.ljust(_NAME), "dim"), (value.rjust(_VALUE), "bold"))
        between = "  "
        for part in rest:
            if line.cell_len + len(between) + cell_len(part) > self.width:
                break
            line.append(between, "dim").append(part)
            between = self.glyphs.between
        return line

    def _cropped(self, text: str, width: int, style: str = "") -> Text:
        return Text(cropped(clean(text, self.glyphs), width, self.glyphs.more), style)


def _sparkline(values: Sequence[float], bars: str) -> str:
    most = max(values, default=0) or 1
    return "".join(bars[min(len(bars) - 1, int(value / most * len(bars)))] for value in values)


def _wrapped(text: str, width: int, style: str) -> Iterable[Text]:
    return (Text(line, style) for line in chop_cells(text, width)[:_REASON_LINES])
