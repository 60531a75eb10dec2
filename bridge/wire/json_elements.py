"""Splits a JSON array into its elements, in steps of bounded work."""

import re
from typing import Final, NamedTuple

from msgspec import Raw
from msgspec.json import Decoder

from bridge.errors import BodyInvalid, BodyTooLarge, BridgeError, HeadersTooLarge
from bridge.long_work import Steps

MEMBERS_MAX: Final = 4096
"""Members of a message or an event: more than a consumer can receive as headers."""
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
"""A string, or one that does not end: otherwise, each of many quotes would be tried up to the end."""
_OTHER: Final = rb'[^"\[\]{},]*+'
_TOKENS: Final = re.compile(rb"(?!\Z)%b(?:%b%b){0,2}+[\[\]{},]?+" % (_OTHER, _STRING, _OTHER), re.DOTALL)
"""What ends with a bracket or a comma: before it, JSON has at most a name and a value. Otherwise it is not JSON."""
_TOKENS_OF_STEP: Final = 4096
_DEPTH_MAX: Final = 900
"""Brackets in each other: a little less than the parsers of Python and msgspec follow."""
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


def split(raw: bytes, at: int, limit: int, too_many: str, commas_max: int) -> Steps[Elements]:
    """Return the elements of an array from `at` on: behind its bracket, or where an element begins.

    Raises `BodyTooLarge` with the sentence `too_many` if there are more than `limit`; `HeadersTooLarge` or
    `BodyInvalid` as soon as one has more than `commas_max` commas, or brackets that no JSON parser follows.
    """
    elements: list[Element] = []
    start, place, commas, inner_commas = at, at - 1, 0, 0
    brackets = bytearray()  # that are open in the element
    for number, token in enumerate(_TOKENS.finditer(raw, at)):
        if number % _TOKENS_OF_STEP == 0:
            yield
        place = token.end() - 1
        char = raw[place]
        if char in b"[{":
            brackets.append(char)
        elif char in b"]}":
            if not brackets:
                is_empty = not elements and not raw[start:place].strip(WHITE)
                last = [] if is_empty else [Element(start, place, commas, inner_commas)]
                return Elements(elements + last, _wrong_after(raw, place))
            brackets.pop()
        elif char == _COMMA and brackets:
            commas += len(brackets) == 1
            inner_commas += len(brackets) > 1
        elif char == _COMMA:
            elements.append(Element(start, place, commas, inner_commas))
            start, commas, inner_commas = place + 1, 0, 0
            if len(elements) == limit:
                raise BodyTooLarge(too_many)
        else:
            break
        if commas + inner_commas > commas_max or len(brackets) > _DEPTH_MAX:
            raise _no_message(brackets)
    elements.append(Element(start, place + 1, commas, inner_commas))
    return Elements(elements, (_NO_COMMA, len(raw)))


def _no_message(brackets: bytearray) -> BridgeError:
    """Return the error of an element that is too long or too deep, by the brackets that are open in it."""
    if len(brackets) > _DEPTH_MAX:
        return BodyInvalid(f"The body is not JSON: it has more than {_DEPTH_MAX} brackets in each other.")
    if brackets.endswith(b"{"):
        return HeadersTooLarge(f"An object of the batch has more than {MEMBERS_MAX} members.")
    return BodyInvalid("The body is not a batch: no message has so long an array.")


def _wrong_after(raw: bytes, place: int) -> tuple[str, int] | None:
    """Return what is wrong with the last bracket, or behind it."""
    if not raw.startswith(b"]", place):
        return _NO_COMMA, place
    more = raw[place + 1 :].lstrip(WHITE)
    return ("Extra data", len(raw) - len(more)) if more else None
