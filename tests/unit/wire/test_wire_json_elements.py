"""Large JSON arrays are read in steps of bounded work, with the result of the parser of the standard library."""

import json
import random
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import BodyInvalid, BodyTooLarge, BridgeError, HeaderInvalid, HeadersTooLarge
from bridge.long_work import Steps, run_at_once
from bridge.message import Message
from bridge.wire import jsonform
from bridge.wire.json_elements import MEMBERS_MAX, Element, split
from bridge.wire.jsonform import PIECE, decode_array

GOOD: Final = b'{"header":{"destination":"b"}}'

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=40),
    lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=6,
)


def elements(raw: bytes) -> list[Element]:
    found, wrong = run_at_once(split(raw, 1, 1000, "too many", len(raw)))
    assert wrong is None
    return found


def read(raw: bytes) -> list[object]:
    return [json.loads(raw[each.start : each.end]) for each in elements(raw)]


def commas(value: object) -> int:
    """Count the commas of a value and of what is inside it."""
    inside = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return max(0, len(inside) - 1) + sum(map(commas, inside))


def steps(work: Steps[Any]) -> int:
    count = 0
    try:
        for _ in work:
            count += 1
    except BridgeError:
        pass
    return count


@given(st.lists(VALUES, max_size=5), st.sampled_from([None, 1]))
def test_every_array_is_split_where_its_elements_end(array: list[Any], indent: int | None) -> None:
    raw = json.dumps(array, indent=indent, ensure_ascii=indent is None).encode("utf-8", "replace")
    assert read(raw) == json.loads(raw)
    for element, value in zip(elements(raw), array, strict=True):
        assert element.commas == (max(0, len(value) - 1) if isinstance(value, dict | list) else 0)
        assert element.commas + element.inner_commas == commas(value)


def broken(whole: str) -> Iterator[str]:
    """Yield what an array becomes by one wrong byte."""
    chance = random.Random(7)  # noqa: S311
    for _ in range(2000):
        at, char = chance.randrange(len(whole)), chance.choice('{}[],:"\\ x1')
        yield whole[:at] + char + whole[at + 1 :]


@pytest.mark.parametrize("piece", [16, PIECE])
def test_what_is_no_json_is_refused(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(jsonform, "PIECE", piece)
    for text in broken(json.dumps([{"header": {"destination": "orders"}, "data": "x" * 40}] * 3)):
        try:
            expected = json.loads(text)
        except ValueError:
            with pytest.raises(BodyInvalid):
                run_at_once(decode_array(text.encode(), 1000))
        else:
            assert len(run_at_once(decode_array(text.encode(), 1000))) == len(expected)


RESTS: Final = (
    *('{1}, {"a": 2}]', '{"a" 1}]', "x]", '"\\x"]', "]", "{}", "{} {}]", "{}] x", '{"a": [1}]', "{", '"', ",", "{}}"),
    '{"a":1]},{}]',
)
"""What is wrong with the rest of an array."""


@pytest.mark.parametrize("piece", [16, PIECE])
def test_an_error_names_the_character_of_the_body(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests, piece: int
) -> None:
    monkeypatch.setattr(jsonform, "PIECE", piece)
    for rest in RESTS:
        text = f'  [{{"header": {{"destination": "ü"}}}}, {GOOD.decode()}, {rest}'
        with pytest.raises(json.JSONDecodeError) as expected:
            json.loads(text)
        with subtests.test(rest), pytest.raises(BodyInvalid) as refused:
            run_at_once(decode_array(text.encode(), 1000))
        said = f"The body is not JSON: {expected.value.msg}, character {expected.value.pos}."
        assert refused.value.detail == said


def test_an_unpaired_surrogate_harms_its_own_message_only() -> None:
    for wrong in (b"\\ud800", b"\xed\xa0\x80"):
        raw = b'[%b,{"header":{"destination":"%b"}},%b]' % (GOOD, wrong, GOOD)
        assert [type(each) for each in run_at_once(decode_array(raw, 3))] == [Message, HeaderInvalid, Message]


def test_what_is_not_utf_8_or_a_number_without_end_is_refused() -> None:
    for wrong, said in ((b'"\xff"', "invalid start byte at byte"), (b"9" * 4301, "more than 4300 digits")):
        with pytest.raises(BodyInvalid, match=said):
            run_at_once(decode_array(b'[%b,{"properties":{"a":%b}}]' % (GOOD, wrong), 1000))


def test_every_part_of_a_large_body_is_a_step_of_its_own(subtests: pytest.Subtests) -> None:
    size = 40 * PIECE
    message = b'{"header":{"destination":"b"},"properties":{"a":"%s"}},' % (b"x" * 4000)
    bodies = {
        "many messages": b"[" + message * (size // len(message)) + b"{}]",
        "many values": b"[" + (b'{"a":{%s}},' % b",".join(b'"%d":1' % n for n in range(4000))) * 40 + b"{}]",
    }
    for name, body in bodies.items():
        with subtests.test(name):
            assert steps(decode_array(body, 1000)) >= len(body) // (2 * PIECE)


def test_a_string_of_any_length_is_read() -> None:
    for body in (b"x" * (4 << 20), b"},{" * (1 << 20)):
        [message] = run_at_once(decode_array(b'[{"header":{"destination":"b"},"properties":{"a":"%b"}}]' % body, 1))
        assert isinstance(message, Message)
        assert message.properties == {"a": body.decode()}


def test_more_elements_than_the_limit_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(run_at_once(decode_array(b"[%b,%b]" % (GOOD, GOOD), 2))) == 2
    for piece in (16, PIECE):
        monkeypatch.setattr(jsonform, "PIECE", piece)
        for rest in (GOOD, b"3 this is never read"):
            with pytest.raises(BodyTooLarge, match="at most 2"):
                run_at_once(decode_array(b"[%b,%b,%b]" % (GOOD, GOOD, rest), 2))


def with_properties(count: int) -> bytes:
    members = b",".join(b'"%d":""' % n for n in range(count))
    return b'[%b,{"header":{"destination":"b"},"properties":{%b}},%b]' % (GOOD, members, GOOD)


def test_a_message_with_more_members_than_any_is_refused() -> None:
    for count, expected in ((MEMBERS_MAX, Message), (MEMBERS_MAX + 1, HeadersTooLarge)):
        results = run_at_once(decode_array(with_properties(count), 3))
        assert [type(each) for each in results] == [Message, expected, Message]
    with pytest.raises(HeadersTooLarge, match="more than 4096 members"):
        run_at_once(decode_array(with_properties(9 * MEMBERS_MAX), 3))


def test_what_no_message_has_is_refused_as_soon_as_it_is_too_long() -> None:
    for body in (b'[{"properties":{"a":[%b1]}}]' % (b"1," * (1 << 20)), b"[" * (1 << 20), b'[{"a":' * (1 << 18)):
        with pytest.raises(BodyInvalid):
            run_at_once(decode_array(body, 1000))
        assert steps(decode_array(body, 1000)) < 10


def test_a_body_that_no_batch_is_like_is_refused() -> None:
    for body in (b"[[" + b"[]," * PIECE + b"[]]]", b"[" * PIECE * 2, b"[" + b"9" * 99_999 + b"]"):
        try:
            results = run_at_once(decode_array(body, 1000))
        except BodyInvalid:
            continue
        assert [isinstance(each, BridgeError) for each in results] == [True]
