"""The settings as a flat list: what sentences suggest, environment variables name and docs/configuration.md shows."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from bridge.settings.model import NESTED, PREFIX, READ_BYTES, Settings

_UNITS: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


class Leaf(NamedTuple):
    """One setting that can be given a value."""

    path: tuple[str, ...]
    description: str
    default: str
    """As a person would write it; empty where there is none."""
    allowed: str
    """What it may hold; empty where only the check of the value itself can say it."""

    @property
    def name(self) -> str:
        """As documents and sentences write it: `limits.body`."""
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        """Its environment variable: `OMS_LIMITS__BODY`."""
        return PREFIX + NESTED.join(self.path).upper()


def leaves(model: type[BaseModel] = Settings, above: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Walk every setting in the order of the model."""
    for name, field in model.model_fields.items():
        types = _parts(field.annotation)
        section = next((t for t in types if isinstance(t, type) and issubclass(t, BaseModel)), None)
        if section is not None:
            yield from leaves(section, (*above, name))
        else:
            default = "" if field.is_required() else _shown(field.default, in_bytes=READ_BYTES in field.metadata)
            yield Leaf((*above, name), field.description or "", default, _allowed(types, field.metadata))


def _parts(annotation: object) -> Sequence[object]:
    """Look inside `X | None` and `Annotated[X, …]`, not inside a tuple or a choice of words."""
    if get_origin(annotation) in (None, tuple, Literal):
        return (annotation,)
    return [part for inner in get_args(annotation) for part in _parts(inner)]


def _allowed(types: Sequence[object], metadata: Sequence[object]) -> str:
    low = next((rule.ge for rule in metadata if hasattr(rule, "ge")), None)
    high = next((rule.le for rule in metadata if hasattr(rule, "le")), None)
    if READ_BYTES in metadata:
        ends = f"from {_shown(low, in_bytes=True)} to {_shown(high, in_bytes=True)}"
        return f"a number of bytes, such as 65536 or 64KiB, {ends}"
    if int in types:
        return f"a whole number from {low} to {high}"
    if bool in types:
        return "true or false"
    words = next((get_args(t) for t in types if get_origin(t) is Literal), ())
    return " or ".join((", ".join(words[:-1]), words[-1])) if words else ""


def _shown(value: object, *, in_bytes: bool) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and in_bytes:
        return next(
            (f"{value // size}{unit}" for unit, size in _UNITS if value >= size and not value % size), str(value)
        )
    return str(value)
