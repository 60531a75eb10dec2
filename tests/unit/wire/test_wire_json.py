import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import BodyInvalid, BodyTooLarge, BridgeError, HeaderInvalid, HeaderMissing, HeaderRepeated, Rejected
from bridge.long_work import run_at_once
from bridge.message import FIELDS, Field, Message
from bridge.wire.json_errors import decode
from bridge.wire.jsonform import decode_array, encode, encode_array
from tests.unit.strategies import messages, refusal


def item(**members: object) -> dict[str, Any]:
    return {"header": {"destination": "orders"}, **members}


def judged(raw: bytes | str, limit: int = 100) -> list[Message | BridgeError]:
    return run_at_once(decode_array(raw.encode() if isinstance(raw, str) else raw, limit))


def one(raw: bytes | str) -> Message | BridgeError:
    (result,) = judged(raw)
    return result


@given(st.lists(messages(), max_size=4))
def test_an_array_that_is_encoded_is_decoded_again(batch: list[Message]) -> None:
    assert run_at_once(decode_array(encode_array(batch), 4)) == batch


@given(messages())
def test_the_json_form_is_ascii_on_one_line(message: Message) -> None:
    raw = encode_array([message])
    assert raw.isascii()
    assert b"\n" not in raw


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(), max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
_MEMBERS = st.sampled_from(("version", "header", "extensionHeader", "properties", "data", "message", "other"))


@given(st.lists(st.one_of(_JSON, st.dictionaries(_MEMBERS, _JSON, max_size=4)), max_size=3))
def test_no_json_raises_anything_but_the_error_tree(array: list[object]) -> None:
    raw = json.dumps(array).encode()
    try:
        results = run_at_once(decode_array(raw, 10))
    except BodyInvalid:
        assert b"NaN" in raw or b"Infinity" in raw
        return
    assert len(results) == len(array)
    for result in results:
        assert isinstance(result, Rejected)
        assert result.detail.isascii()


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_the_error_tree(raw: bytes) -> None:
    error = refusal(lambda: run_at_once(decode_array(raw, 10)))
    assert error is None or error.status in {400, 413}


def test_what_is_no_json_array_is_refused_as_a_whole(subtests: pytest.Subtests) -> None:
    cases: list[bytes | str] = [
        "",
        "{}",
        "null",
        "1",
        '"text"',
        "[",
        "[1,]",
        "[NaN]",
        "[Infinity]",
        "[-Infinity]",
        "[" + "9" * 5000 + "]",
        "[]x",
        "\ufeff[",
        b"\xff",
    ]
    for raw in cases:
        with subtests.test(raw=raw), pytest.raises(BodyInvalid):
            judged(raw)


@pytest.mark.parametrize("raw", ["[" * 200_000, '{"a":' * 200_000, "[" * 100_000 + "]" * 100_000])
def test_deep_nesting_is_refused(raw: str) -> None:
    with pytest.raises(BodyInvalid):
        judged(raw)


def test_too_many_messages_are_refused() -> None:
    assert len(judged(json.dumps([item()] * 5), 5)) == 5
    with pytest.raises(BodyTooLarge):
        judged(json.dumps([item()] * 6), 5)


def test_an_empty_array_is_no_error_here() -> None:
    assert judged("[]") == []


def test_one_bad_message_among_good_ones_is_judged_on_its_own() -> None:
    results = judged(json.dumps([item(data="MQ=="), 7, item(extensionHeader={"priority": "high"}), {}, item()]))
    names = ["Message", "BodyInvalid", "HeaderInvalid", "HeaderMissing", "Message"]
    assert [type(r).__name__ for r in results] == names


def test_the_specification_s_own_wrapping_is_read() -> None:
    assert decode({"message": item(data="aGk=")}) == Message("orders", b"hi")
    with pytest.raises(HeaderInvalid):
        decode({"message": item(), "header": {}})
    with pytest.raises(Rejected):
        decode({"message": {"message": item()}})


@pytest.mark.parametrize("data", [None, {}, ""])
def test_an_empty_body_may_be_null_or_an_empty_object(data: object) -> None:
    assert decode(item(data=data)).body == b""
    assert decode(item()).body == b""


def test_data_that_is_no_base64_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[object] = ["a", "aGk", "a-_=", "aGk=\n", "ü", "\ud800", 7, [], {"a": 1}, True, "aGk==="]
    for data in cases:
        with subtests.test(data=data), pytest.raises(BodyInvalid):
            decode(item(data=data))


def test_a_number_is_a_whole_number_in_its_range(subtests: pytest.Subtests) -> None:
    for field in [f for f in FIELDS if f.maximum is not None]:
        with subtests.test(field=field):
            assert field.maximum is not None
            for number in (0, field.maximum):
                assert getattr(decode(_with(field, number)), field.attribute) == number
            wrong: list[object] = [-1, field.maximum + 1, 10**400, 1.0, 0.5, True, "1", None, [], {}]
            for value in wrong:
                with pytest.raises(HeaderInvalid, match=field.name):
                    decode(_with(field, value))


def test_a_string_is_text(subtests: pytest.Subtests) -> None:
    for field in [f for f in FIELDS if f.maximum is None]:
        with subtests.test(field=field):
            wrong: list[object] = [1, None, True, [], {}, "\ud800"]
            for value in wrong:
                with pytest.raises(HeaderInvalid, match=field.name):
                    decode(_with(field, value))
            if field.required:
                with pytest.raises(HeaderInvalid, match="empty"):
                    decode(_with(field, ""))


def _with(field: Field, value: object) -> dict[str, Any]:
    made: dict[str, Any] = {"header": {"destination": "orders"}, "extensionHeader": {}}
    made[field.section][field.name] = value
    return made


def test_a_member_that_does_not_fit_is_named(subtests: pytest.Subtests) -> None:
    cases: list[object] = [
        {"header": None},
        {"header": []},
        item(extensionHeader=None),
        item(properties=None),
        item(properties={"": "x"}),
        item(properties={"x" * 250: "x"}),
        item(properties={"\ud800": "x"}),
        item(properties={"a": None}),
        item(properties={"a": True}),
        item(properties={"a": "\ud800"}),
        item(properties={"a": float("inf")}),
        item(extensionHeader={"contentType": 1}),
        item(extensionHeader={"Priority": 1}),
        item(extensionHeader={"destination": "orders"}),
        item(Header={}),
        item(body=""),
        item(version="2.0.0"),
        item(version=1),
    ]
    for wrong in cases:
        with subtests.test(wrong=wrong):
            with pytest.raises(Rejected) as refused:
                decode(wrong)
            assert refused.value.detail.isascii()


def test_a_mistyped_member_names_the_nearest_one(subtests: pytest.Subtests) -> None:
    cases: list[tuple[object, str]] = [
        (item(headers={}), "unknown member `headers`; did you mean `header`?"),
        (item(colour={}), "unknown member `colour`; a message has data, extensionHeader, header, properties, version."),
        (
            item(extensionHeader={"prioritty": 1}),
            "unknown member `extensionHeader.prioritty`; did you mean `extensionHeader.priority`?",
        ),
        (
            item(properties={}, header={"destination": "orders", "z": 1}),
            "unknown member `header.z`; header has bornHost, bornTimestamp, compression, destination, messageId, qos.",
        ),
        (
            {"header": {"messageKey": "a"}},
            "unknown member `header.messageKey`; did you mean `extensionHeader.messageKey`?",
        ),
    ]
    for wrong, sentence in cases:
        with subtests.test(wrong=wrong), pytest.raises(HeaderInvalid) as refused:
            decode(wrong)
        assert refused.value.detail == sentence


def test_a_message_needs_a_destination() -> None:
    items: list[dict[str, object]] = [{}, {"header": {}}]
    for wrong in items:
        with pytest.raises(HeaderMissing):
            decode(wrong)


def test_a_numeric_property_keeps_the_text_it_was_written_with(subtests: pytest.Subtests) -> None:
    cases: list[str] = ["7", "-1", "2.5", "1.10", "1" + "0" * 30, "1e999", "-0.0"]
    for text in cases:
        with subtests.test(text=text):
            (message,) = run_at_once(
                decode_array(b'[{"header":{"destination":"a"},"properties":{"a":%s}}]' % text.encode(), 1)
            )
            assert isinstance(message, Message)
            assert message.properties == {"a": text}


def test_a_number_is_no_string() -> None:
    assert isinstance(one('[{"header":{"destination":1.5}}]'), HeaderInvalid)


def test_a_repeated_member_is_refused_as_a_repeated_header_is(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        '[{"header":{"destination":"a","destination":"b"}}]',
        '[{"header":{"destination":"a"},"header":{"destination":"b"}}]',
        '[{"header":{"destination":"a"},"properties":{"p":"1","p":"1"}}]',
        '[{"message":{"header":{"destination":"a"},"data":"","data":""}}]',
        '[{"message":{},"message":{}}]',
    ]
    for raw in cases:
        with subtests.test(raw=raw):
            assert isinstance(one(raw), HeaderRepeated)


def test_a_repeated_member_harms_its_own_message_only() -> None:
    good = json.dumps(item())
    results = judged(f'[{good},{{"header":{{"destination":"a","destination":"b"}}}},{good}]')
    assert [type(r).__name__ for r in results] == ["Message", "HeaderRepeated", "Message"]


def test_a_broken_trace_context_is_dropped_and_not_an_error() -> None:
    message = decode(item(extensionHeader={"traceparent": "00-x", "tracestate": "a=b"}))
    assert (message.traceparent, message.tracestate) == (None, None)


def test_members_that_nobody_set_are_left_out() -> None:
    assert json.loads(encode(Message("orders"))) == {
        "version": "1.0.0",
        "header": {"destination": "orders"},
        "extensionHeader": {},
        "properties": {},
        "data": "",
    }
