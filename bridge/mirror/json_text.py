"""The column `json`: the text of a body whose media type is JSON, if every reader's parser takes it."""

import re
from codecs import BOM_UTF8
from functools import lru_cache
from typing import Final

import msgspec

_JSON: Final = re.compile(
    r"\s*(?:(?:application|text)/json|[^/;\s]+/[^/;\s]+\+json)\s*(?:;.*)?", re.IGNORECASE | re.DOTALL
)
"""A JSON MIME type, as the WHATWG defines it: `application/json`, `text/json` and `…+json`, with any parameters."""
_PARSER: Final = msgspec.json.Decoder(msgspec.Raw)
"""Checks the syntax, and makes no objects. Strict: DuckDB's functions fail a query at a text that is not JSON, such as
half of a surrogate pair."""


@lru_cache(1024)
def is_json(content_type: str | None) -> bool:
    """Whether a media type is JSON."""
    return content_type is not None and _JSON.fullmatch(content_type) is not None


def json_text(content_type: str | None, body: bytes) -> str | None:
    """Return the text of a body, without a byte order mark; None: it is not JSON in UTF-8, or nested too deeply."""
    if not is_json(content_type):
        return None
    body = body.removeprefix(BOM_UTF8)
    try:
        _PARSER.decode(body)
        return body.decode()  # the parser looks at no bytes of strings
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
