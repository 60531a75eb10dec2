"""Splits a JSON array into its elements, in steps of bounded work."""

import re
from typing import Final, NamedTuple

from msgspec import Raw
from msgspec.json import Decoder

from bridge.errors import BodyTooLarge
from bridge.long_work import Steps

MEMBERS_MAX: Final = 4096
"""Members of a message or an event: more than a consumer can receive as headers."""
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
"""A string, or one that does not end: otherwise, each of many quotes would be tried up to the end."""
_OTHER: Final = rb'[^"\[\]{},]*+'
_TOKENS: Final = re.compile(rb"(?!\Z)%b(?:%b%b){0,2}+(?:[\[\]{},]|\Z)|." % (_OTHER, _STRING, _OTHER), re.DOTALL)
"""What ends with a bracket or a comma: before it, JSON has at most a name and a value. Or else a single byte."""
_TOKENS_OF_STEP: Final = 4096
_NESTED: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_COMMA: Final = ord(",")
_TEXTS: Final = Decoder(list[Raw])
_NO_COMMA: Final = "Expecting ',' delimiter"
WHITE: Final = b" \t\r\n"


class Element(NamedTuple):
    """What is between two commas of an array, or before its end: an element, unless the array is not JSON."""

    start: int
    end: int
    commas: int
    """Between its own members."""
    inner_commas: int
    """Between members of what is inside it."""


class Elements(NamedTuple):
    """An array."""

    elements: list[Element]
    wrong: tuple[str, int] | None
    """What is wrong if all elements are JSON, and at which byte."""


def texts_of(array: bytes) -> list[Raw]:
    """Return the texts of the elements of an array at once. Raises `ValueError` or `RecursionError` if it is not one.

    An array with an unpaired surrogate is not one for msgspec.
    """
    array.decode()  # msgspec does not check bytes that it skips
    return _TEXTS.decode(array)


def split(raw: bytes, at: int, limit: int, too_many: str) -> Steps[Elements]:
    """Return the elements of an array from `at` on: behind its bracket, or where an element begins.

    Raises `BodyTooLarge` with the sentence `too_many` if there are more than `limit`.
    """
    elements: list[Element] = []
    start, depth, commas, inner_commas = at, 1, 0, 0
    for number, token in enumerate(_TOKENS.finditer(raw, at)):
        if number % _TOKENS_OF_STEP == 0:
            yield
        place = token.end() - 1
        char = raw[place]
        depth += _NESTED.get(char, 0)
        if depth == 0:
            is_empty = not elements and not raw[start:place].strip(WHITE)
            last = [] if is_empty else [Element(start, place, commas, inner_commas)]
            return Elements(elements + last, _wrong_after(raw, place))
        if char != _COMMA:
            continue
        if depth > 2:  # noqa: PLR2004 - the array, the element, and what is inside that
            inner_commas += 1
        elif depth == 2:  # noqa: PLR2004
            commas += 1
        else:
            elements.append(Element(start, place, commas, inner_commas))
            start, commas, inner_commas = place + 1, 0, 0
            if len(elements) == limit:
                raise BodyTooLarge(too_many)
    elements.append(Element(start, len(raw), commas, inner_commas))
    return Elements(elements, (_NO_COMMA, len(raw)))


def _wrong_after(raw: bytes, place: int) -> tuple[str, int] | None:
    """Return what is wrong with the last bracket, or behind it."""
    if not raw.startswith(b"]", place):
        return _NO_COMMA, place
    more = raw[place + 1 :].lstrip(WHITE)
    return ("Extra data", len(raw) - len(more)) if more else None
