"""What a native producer's values are called where only text is. Pure."""

import json
from datetime import datetime
from typing import Any, Final

from adapters.unmapped_headers import as_text

_ISO_UTC: Final = "+00:00"
_DIGITS_MAX: Final = 19


def text_of(value: str | bytes) -> str:
    """Return a short string as text; bytes that are none as a data URL."""
    return value if isinstance(value, str) else as_text(value)


def bytes_of(value: Any) -> bytes:  # noqa: ANN401 - whatever a table holds
    """Return a value as the text of a property, in UTF-8; bytes stay what they are.

    Numbers in digits, `true`, nothing for no value, times as `2026-11-21T09:30:00Z`, lists and tables as JSON.
    """
    if isinstance(value, bytes):
        return value
    return _plain(value).encode("utf-8", "replace")


def number_of(value: object) -> int | None:
    """Return what is a whole number, or the digits of one, from 0 on."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if value >= 0 else None
    if isinstance(value, str) and len(value) <= _DIGITS_MAX and value.isascii() and value.isdigit():
        return int(value)
    return None


def _plain(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat().replace(_ISO_UTC, "Z")
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_inside)
    return str(value)


def _inside(value: Any) -> str:  # noqa: ANN401
    return as_text(value) if isinstance(value, bytes) else _plain(value)
