"""How times, sizes and names are written for a person at a terminal. Pure."""

from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size

_STEP: Final = 1000
_SOON: Final = 10
"""Below that a number has one decimal."""


class Glyphs(NamedTuple):
    """What is drawn with."""

    dot: str
    arrow: str
    between: str
    more: str
    bars: str
    """From nothing to the most."""


UNICODE: Final = Glyphs("●", "→", " · ", "…", "▁▂▃▄▅▆▇█")
ASCII: Final = Glyphs("*", "->", ", ", "~", "_.:-=+*#")


def clean(text: str, glyphs: Glyphs = UNICODE) -> str:
    """Return the text on one line, with what a terminal would obey or cannot show made visible."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return shown.encode("ascii", "backslashreplace").decode() if glyphs is ASCII else shown


def cropped(text: str, width: int, more: str) -> str:
    """Cut out of the middle what is too much: the end of a log's name tells the partition."""
    if cell_len(text) <= width:
        return text
    kept = max(0, width // 3)
    tail = text[len(text) - kept :]
    while cell_len(tail) > kept:
        tail = tail[1:]
    head = set_cell_size(text, max(0, width - cell_len(more) - cell_len(tail)))
    return f"{head}{more}{tail}"[: max(0, width)]


def seconds(milliseconds: int) -> str:
    """Say how many seconds."""
    return f"{milliseconds / _STEP:.1f} s"


def age(milliseconds: int) -> str:
    """Say how long, in two units at most; below 0, which clocks bring about, is 0."""
    if milliseconds < _SOON * _STEP:
        return seconds(max(0, milliseconds))
    minutes, rest = divmod(milliseconds // _STEP, 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min {rest} s" if minutes < _SOON else f"{minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min"


def size(count: int) -> str:
    """Say how many bytes, in three digits."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < _STEP or unit == "TB":
            break
        value /= _STEP
    return f"{value:.1f} {unit}" if value < _SOON and unit != "B" else f"{value:,.0f} {unit}"


def many(count: int, what: str) -> str:
    """Say how many of something there are."""
    plural = f"{what}es" if what.endswith("ch") else f"{what}s"
    return f"{count:,} {what if count == 1 else plural}"
