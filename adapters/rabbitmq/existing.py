"""Reads the file of `destinations=`: names that exist already, and what destinations keep no log."""

from pathlib import Path
from typing import Any, Final

import yaml

from adapters.rabbitmq.options import Existing

_NAME_MAX: Final = 255
_EXAMPLE: Final = "orders: {queue: legacy.orders}"


def read_existing(text: str) -> dict[str, Existing]:
    """Return what the YAML file of that path says, by destination. Raises `ValueError` with what is allowed."""
    try:
        held = yaml.safe_load(Path(text).read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"the file cannot be read ({error.strerror})") from None
    except (ValueError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"the file is not YAML{'' if mark is None else f' (line {mark.line + 1})'}") from None
    if not isinstance(held, dict) or not all(isinstance(name, str) and name for name in held):
        raise ValueError(f"the file must map names of destinations, as in {_EXAMPLE}")
    return {name: _existing(name, said) for name, said in held.items()}


def _existing(destination: str, said: Any) -> Existing:  # noqa: ANN401 - whatever the YAML holds
    if not isinstance(said, dict) or not said or not set(said) <= set(Existing._fields):
        raise ValueError(f"{destination} must have one or more of {', '.join(Existing._fields)}, as in {_EXAMPLE}")
    for field, value in said.items():
        if field == "log":
            if not isinstance(value, bool):
                raise ValueError(f"{destination}: log must be true or false")
        elif not isinstance(value, str) or not _fits(value, empty=field == "routing_key"):
            raise ValueError(f"{destination}: {field} must have 1 to {_NAME_MAX} bytes of text, in quotes if needed")
    existing = Existing(**said)
    if existing.routing_key is not None and existing.exchange is None:
        raise ValueError(f"{destination}: routing_key needs exchange")
    if existing.queue is not None and existing.log:
        raise ValueError(f"{destination}: an existing queue has no log")
    return existing


def _fits(text: str, *, empty: bool) -> bool:
    return (empty or bool(text)) and len(text.encode()) <= _NAME_MAX and (not text or text.isprintable())
