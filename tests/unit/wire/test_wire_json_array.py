"""Large JSON arrays are read in steps of bounded work, with the result of the parser of the standard library."""

import json
import random
import re
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import BodyInvalid, BodyTooLarge, BridgeError, HeadersTooLarge
from bridge.long_work import run_at_once
from bridge.wire import json_array
from bridge.wire.json_array import MEMBERS_MAX, ArrayReader

SMALL: Final = 16

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | st.text(max_size=40),
    lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def take_none(_array: str, _most: int) -> int:
    return 0


def read(raw: bytes, limit: int = 1000) -> list[object]:
    found: list[object] = []
    run_at_once(ArrayReader(raw, json.JSONDecoder(object_pairs_hook=dict), dict).read(limit, found.append, take_none))
    return found


def steps(raw: bytes) -> int:
    found: list[object] = []
    try:
        return sum(1 for _ in ArrayReader(raw, json.JSONDecoder(), dict).read(1000, found.append, take_none))
    except BridgeError:
        return 0


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_array, "PIECE", SMALL)


@pytest.mark.usefixtures("small_pieces")
def test_pieces_make_no_difference() -> None:
    @given(st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), max_size=5), st.sampled_from([None, 1]))
    def check(array: list[Any], indent: int | None) -> None:
        raw = json.dumps(array, indent=indent, ensure_ascii=indent is None).encode("utf-8", "surrogatepass")
        try:
            assert read(raw) == array
        except BodyInvalid:
            assert any(nested(each) > 3 or longest(each) >= SMALL for each in array)

    check()


@pytest.mark.usefixtures("small_pieces")
def test_a_number_may_be_cut_anywhere() -> None:
    for number in (b"-0.0", b"12e+2", b"1.5E-1", b"120"):
        for spaces in range(SMALL):
            raw = b'[{"a":%s%s}]' % (b" " * spaces, number)
            assert read(raw) == json.loads(raw)


@pytest.mark.usefixtures("small_pieces")
def test_an_error_of_a_large_element_says_what_was_expected() -> None:
    for rest in (b',"b" 1}]', b",1}]", b' "b":1}]', b"}1]", b"},"):
        raw = b'[{"a":"%s"%s' % (b"x" * 4 * SMALL, rest)
        with pytest.raises(json.JSONDecodeError) as expected:
            json.loads(raw)
        with pytest.raises(BridgeError, match=re.escape(expected.value.msg)):
            read(raw)


@pytest.mark.usefixtures("small_pieces")
def test_what_is_no_json_is_refused_in_pieces_too() -> None:
    whole = json.dumps([{"header": {"destination": "orders"}, "data": "x" * 40}] * 3)
    chance = random.Random(7)  # noqa: S311
    for _ in range(2000):
        at, char = chance.randrange(len(whole)), chance.choice('{}[],:"\\ x1')
        broken = whole[:at] + char + whole[at + 1 :]
        try:
            expected = json.loads(broken)
        except ValueError:
            with pytest.raises(BridgeError):
                read(broken.encode())
        else:
            if isinstance(expected, list):
                assert read(broken.encode()) == expected


def test_every_part_of_a_large_body_is_a_step_of_its_own(subtests: pytest.Subtests) -> None:
    size = 40 * json_array.PIECE
    message = b'{"header":{"destination":"b"},"properties":{"a":"%s"}},' % (b"x" * 4000)
    bodies = {
        "many messages": b"[" + message * (size // len(message)) + b"{}]",
        "many values": b"[" + (b'{"a":{%s}},' % b",".join(b'"%d":1' % n for n in range(4000))) * 40 + b"{}]",
    }
    for name, body in bodies.items():
        with subtests.test(name):
            assert steps(body) >= len(body) // json_array.PIECE


def test_a_string_of_any_length_is_read() -> None:
    assert read(b'[{"data":"%s"},1]' % (b"x" * (4 << 20))) == [{"data": "x" * (4 << 20)}, 1]


def test_more_elements_than_the_limit_are_not_read() -> None:
    assert read(b"[1,2]", 2) == [1, 2]
    with pytest.raises(BodyTooLarge, match="at most 2"):
        read(b"[1,2,3 this is never read", 2)


def test_an_object_with_more_members_than_any_message_is_refused() -> None:
    members = b",".join(b'"%d":"%s"' % (n, b"x" * 20) for n in range(MEMBERS_MAX))
    assert len(read(b"[{%s}]" % members)) == 1
    with pytest.raises(HeadersTooLarge, match=str(MEMBERS_MAX)):
        read(b'[{%s,"more":1}]' % members)


def test_a_long_value_that_no_message_has_is_refused() -> None:
    for body in (b"[[" + b"[]," * json_array.PIECE + b"[]]]", b"[" * json_array.PIECE * 2, b"[" + b"9" * 99_999 + b"]"):
        with pytest.raises(BodyInvalid):
            read(body)


def test_a_large_object_that_is_deeper_than_any_message_is_refused() -> None:
    large = b'{"a":"%s"}' % (b"x" * 2 * json_array.PIECE)
    assert len(read(b'[{"a":{"b":%s}}]' % large)) == 1
    with pytest.raises(BodyInvalid, match="no message has one so long"):
        read(b'[{"a":{"b":{"c":%s}}}]' % large)


def nested(value: object) -> int:
    return 1 + max(map(nested, value.values()), default=0) if isinstance(value, dict) else 0


def longest(value: object) -> int:
    """Return the length of the longest number."""
    if isinstance(value, dict):
        return max(map(longest, value.values()), default=0)
    return 0 if isinstance(value, str) else len(json.dumps(value))
