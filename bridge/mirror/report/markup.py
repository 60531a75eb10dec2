"""Markup that is safe by the way it is made: text is escaped unless it is markup already. Pure."""

from html import escape

from bridge.cli.output import printable


class Markup(str):
    """Text that is markup: only `tag` and `joined` make it."""

    __slots__ = ()


def tag(name: str, *inside: str, **attributes: object) -> Markup:
    """Return an element. `class_` is class, `stroke_width` stroke-width; an attribute that is None is left out."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(printable(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{said}>{joined(*inside)}</{name}>")


def joined(*pieces: str) -> Markup:
    """Return the pieces one after another. What a terminal could not show is escaped as it is there."""
    return Markup("".join(piece if isinstance(piece, Markup) else escape(printable(piece)) for piece in pieces))
