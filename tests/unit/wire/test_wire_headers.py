import string
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.errors import HeaderInvalid, HeaderMissing, HeaderRepeated, HeadersTooLarge, VersionUnsupported
from bridge.message import FIELDS, INTEGER_MAX, LONG_MAX, Field, Message
from bridge.wire.headers import (
    PARAMETERS,
    VERSION,
    check_size,
    check_version,
    encode,
    largest_safe_size,
    parse,
    read_number,
)
from tests.unit.strategies import NO_NUMBERS, broker_messages, messages, refusal

TOKEN: Final = frozenset((string.ascii_lowercase + string.digits + "!#$%&'*+-.^_`|~").encode())
NUMBERS: Final = tuple(f for f in FIELDS if f.maximum is not None)
STRINGS: Final = tuple(f for f in FIELDS if f.maximum is None)
DESTINATION: Final = (b"x-oms-h-destination", b"orders")
PARENT: Final = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"

NO_TEXTS: Final = (b"Z\xfcrich", b"caf\xe9", b"\xff\xfe", b"\xed\xa0\x80", b"\xc3")
"""Not ASCII, and not UTF-8."""
CONTROLS: Final = (b"a\r\nb", b"a\nb", b"a\0b", b"\x7f", b"a\x01b", b"a\x7fb", b"\x1b[2J")


def header(field: Field) -> bytes:
    return f"x-oms-h-{field.name.lower()}".encode()


@given(messages())
def test_what_is_encoded_is_decoded_again(message: Message) -> None:
    assert parse(encode(message)).message(message.body) == message


@given(messages())
def test_a_second_round_trip_writes_the_same_headers(message: Message) -> None:
    assert encode(parse(encode(message)).message(message.body)) == encode(message)


@given(broker_messages())
@example(Message("orders", traceparent="01-" + "a" * 32 + "-" + "b" * 16 + "-01-\r\nset-cookie: x"))
@example(Message("orders", traceparent="01-" + "a" * 32 + "-" + "b" * 16 + "-01-\ud800"))
@example(Message("orders", content_type=" text/plain "))
@example(Message("orders", properties={"\ud800": "\udfff"}))
@example(Message("orders", message_key="a\r\nx-oms-h-priority: 9\0"))
def test_no_message_from_a_broker_breaks_a_response(message: Message) -> None:
    for name, value in encode(message):
        assert name, "a name is never empty"
        assert TOKEN.issuperset(name)
        assert all(0x20 <= byte <= 0x7E for byte in value)
        assert value == value.strip(b" ")


@given(messages(), st.integers(0, 10_000))
def test_headers_are_refused_exactly_when_no_consumer_could_be_sent_them(message: Message, limit: int) -> None:
    message = message._replace(destination="orders", compression=None, store_host="bridge:8080")
    size = sum(len(name) + len(value) + 32 for name, value in encode(message))
    assert (refusal(lambda: check_size(message, limit)) is not None) is (size > limit)


@given(messages())
def test_every_name_is_written_once(message: Message) -> None:
    written = [name.rstrip(b"*") for name, _ in encode(message)]
    assert len(written) == len(set(written))


_OMS_NAMES: Final = st.sampled_from(
    [header(f) for f in FIELDS]
    + [header(f) + b"*" for f in FIELDS]
    + [b"x-oms-" + p.encode() for p in PARAMETERS]
    + [b"x-oms-p-a", b"x-oms-p-a*", b"x-oms-p-%", b"x-oms-p-*", b"x-oms-p-", b"x-oms-", b"x-oms-h-", b"content-type"]
    + [b"traceparent", b"tracestate", b"x-oms-h-nothing", b"x-oms-p-\xff"]
)
_VALUES: Final = st.one_of(
    st.binary(max_size=40),
    st.binary(max_size=20).map(b"UTF-8''".__add__),
    st.sampled_from((b"", b"0", b"9" * 30, b"UTF-8''%", b"UTF-8''%4", b"UTF-8''%ff", b"'", b"''", b"1.0.0")),
)


@given(st.lists(st.tuples(st.one_of(_OMS_NAMES, st.binary(max_size=20)), _VALUES), max_size=6))
def test_no_bytes_raise_anything_but_the_error_tree(pairs: list[tuple[bytes, bytes]]) -> None:
    def read() -> None:
        headers = parse([DESTINATION, *pairs])
        headers.require_version()
        headers.message(b"")

    error = refusal(read)
    assert error is None or (error.detail.isascii() and error.detail.isprintable())


def test_the_table_of_fields_is_the_binding_s() -> None:
    assert [header(f).decode().removeprefix("x-oms-h-") for f in FIELDS] == [
        *("destination", "messageid", "borntimestamp", "bornhost", "qos", "compression", "partition"),
        *("storetimestamp", "storehost", "messagekey", "correlationid", "traceid", "transactionid"),
        *("delaytime", "expiretime", "priority", "durability", "deliverycount"),
    ]
    assert [f.attribute for f in FIELDS] == [name for name in Message._fields if name in {f.attribute for f in FIELDS}]


def test_each_number_has_the_range_of_its_type(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, int]] = [
        *[(name, LONG_MAX) for name in ("bornTimestamp", "storeTimestamp", "delayTime", "expireTime")],
        *[(name, INTEGER_MAX) for name in ("partition", "priority", "deliveryCount")],
        ("qos", 2),
        ("durability", 1),
    ]
    for name, maximum in cases:
        with subtests.test(name=name, maximum=maximum):
            assert {f.name: f.maximum for f in NUMBERS}[name] == maximum


def test_a_field_that_did_not_come_is_none(subtests: pytest.Subtests) -> None:
    for field in FIELDS:
        with subtests.test(field=field):
            if field.name == "destination":
                with pytest.raises(HeaderMissing):
                    parse([]).message(b"")
            else:
                assert getattr(parse([DESTINATION]).message(b""), field.attribute) is None


def test_a_number_is_read_up_to_its_maximum(subtests: pytest.Subtests) -> None:
    for field in NUMBERS:
        with subtests.test(field=field):
            assert field.maximum is not None
            for number in (0, 1, field.maximum):
                assert parse([(header(field), b"%d" % number)]).fields == {field.attribute: number}
                assert parse([(header(field) + b"*", b"UTF-8''%d" % number)]).fields == {field.attribute: number}


def test_a_number_that_is_not_plain_digits_is_refused(subtests: pytest.Subtests) -> None:
    for text in NO_NUMBERS:
        for field in NUMBERS:
            with subtests.test(text=text, field=field):
                for name, raw in ((header(field), text.encode()), (header(field) + b"*", b"UTF-8''" + text.encode())):
                    with pytest.raises(HeaderInvalid, match=header(field).decode()):
                        parse([(name, raw)])


def test_a_number_beyond_its_range_is_refused(subtests: pytest.Subtests) -> None:
    for field in NUMBERS:
        with subtests.test(field=field):
            assert field.maximum is not None
            for raw in (b"%d" % (field.maximum + 1), b"%d" % 2**63, b"%d" % 10**19, b"9" * 40, b"1" * 400, b"9" * 5000):
                with pytest.raises(HeaderInvalid, match=f"out of range; 0 to {field.maximum} is allowed") as refused:
                    parse([(header(field), raw)])
                assert refused.value.detail.startswith(f"{header(field).decode()}: {raw[:40].decode()} is")


def test_an_empty_string_is_refused_where_the_binding_requires_one(subtests: pytest.Subtests) -> None:
    for field in STRINGS:
        with subtests.test(field=field):
            for name, raw in ((header(field), b""), (header(field) + b"*", b"UTF-8''")):
                if field.required:
                    with pytest.raises(HeaderInvalid, match="empty"):
                        parse([(name, raw)])
                else:
                    assert parse([(name, raw)]).fields == {field.attribute: ""}


def test_a_raw_value_outside_ascii_is_refused_with_the_form_to_send(subtests: pytest.Subtests) -> None:
    for field in STRINGS:
        with subtests.test(field=field):
            name = header(field).decode()
            with pytest.raises(HeaderInvalid, match=rf"{name}: .* outside ASCII; .*`{name}\*: UTF-8''Z%C3%BCrich`"):
                parse([(header(field), "Zürich".encode())])
            for raw in NO_TEXTS:
                with pytest.raises(HeaderInvalid, match=f"{name}: .* outside ASCII; "):
                    parse([(header(field), raw)])
            for raw in CONTROLS:
                with pytest.raises(HeaderInvalid, match=f"{header(field).decode()}: .*a control character"):
                    parse([(header(field), raw)])


def test_a_control_character_travels_extended(subtests: pytest.Subtests) -> None:
    for field in STRINGS:
        with subtests.test(field=field):
            message = Message("orders")._replace(**{field.attribute: "a\r\n\0b"})  # type: ignore[arg-type]
            assert (header(field) + b"*", b"UTF-8''a%0D%0A%00b") in encode(message)
            assert parse(encode(message)).message(b"") == message


def test_a_repeated_field_is_refused_in_every_pair_of_forms(subtests: pytest.Subtests) -> None:
    for field in FIELDS:
        with subtests.test(field=field):
            plain, extended = (header(field), b"1"), (header(field) + b"*", b"UTF-8''1")
            for pairs in ([plain, plain], [plain, extended], [extended, plain], [extended, extended]):
                with pytest.raises(HeaderRepeated, match=f"{header(field).decode()}.* is given more than once; "):
                    parse(pairs)


def test_a_parameter_is_kept_as_text_and_refused_when_repeated(subtests: pytest.Subtests) -> None:
    for name in sorted(PARAMETERS):
        with subtests.test(name=name):
            pair = (b"x-oms-" + name.encode(), b" 1 ")
            assert parse([pair]).parameters == {name: " 1 "}
            with pytest.raises(HeaderRepeated, match=f"x-oms-{name} is given more than once; send it once"):
                parse([pair, pair])


def test_two_spellings_of_one_property_are_a_repetition(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes, bytes]] = [
        (b"x-oms-p-a", b"x-oms-p-a"),
        (b"x-oms-p-a", b"x-oms-p-%61"),
        (b"x-oms-p-%4f", b"x-oms-p-%4F"),
        (b"x-oms-p-a", b"x-oms-p-a*"),
        (b"x-oms-p-%61*", b"x-oms-p-a"),
    ]
    for first, second in cases:
        with subtests.test(first=first, second=second):
            pairs = [(name, b"UTF-8''1" if name.endswith(b"*") else b"1") for name in (first, second)]
            with pytest.raises(HeaderRepeated, match=r"x-oms-p-.* is given more than once; send it once"):
                parse(pairs)


def test_an_unknown_oms_header_is_a_mistyped_one(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [
        b"x-oms-",
        b"x-oms-h-",
        b"x-oms-h-prioritty",
        b"x-oms-h-prio",
        b"x-oms-h-colour",
        b"x-oms-waitmilis",
        b"x-oms-colour",
        b"x-oms-sourc",
        b"x-oms-source*",
        b"x-oms-h-priority**",
        b"x-oms-h-\xff",
    ]
    for name in cases:
        with subtests.test(name=name), pytest.raises(HeaderInvalid, match="unknown header `x-oms-"):
            parse([(name, b"1")])


def test_a_mistyped_header_names_the_nearest_one(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes, str]] = [
        (b"x-oms-waitmils", "unknown header `x-oms-waitmils`; did you mean `x-oms-waitmills`?"),
        (b"x-oms-destination", "unknown header `x-oms-destination`; did you mean `x-oms-h-destination`?"),
        (b"x-oms-h-source", "unknown header `x-oms-h-source`; did you mean `x-oms-source`?"),
        (b"x-oms-h-mesagekey*", "unknown header `x-oms-h-mesagekey*`; did you mean `x-oms-h-messagekey`?"),
        (
            b"x-oms-colour",
            "unknown header `x-oms-colour`; GET /docs lists all headers. A property is sent as x-oms-p-NAME.",
        ),
    ]
    for name, sentence in cases:
        with subtests.test(name=name), pytest.raises(HeaderInvalid) as refused:
            parse([(name, b"1")])
        assert refused.value.detail == sentence


def test_a_property_text_that_is_none_is_refused_as_in_a_field(subtests: pytest.Subtests) -> None:
    for name in (b"x-oms-p-note", b"x-oms-require"):
        for raw in (*NO_TEXTS, *CONTROLS):
            with subtests.test(name=name, raw=raw), pytest.raises(HeaderInvalid, match=name.decode()):
                parse([(name, raw)])


def test_a_property_name_is_kept_exactly(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes, str]] = [
        (b"x-oms-p-orderid", "orderid"),
        (b"x-oms-p-%4frder%49d", "OrderId"),
        (b"x-oms-p-%2a", "*"),
        (b"x-oms-p-%25", "%"),
        (b"x-oms-p-" + "ü".encode(), "ü"),
        (b"x-oms-p-" + b"%78" * 249, "x" * 249),
    ]
    for name, expected in cases:
        with subtests.test(name=name, expected=expected):
            assert parse([(name, b"v")]).properties == {expected: "v"}


def test_a_property_name_is_escaped_as_the_profile_says(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, bytes]] = [
        ("plain", b"plain"),
        ("with.dots_and-dashes", b"with.dots_and-dashes"),
        ("OrderId", b"%4frder%49d"),
        ("spaces in it", b"spaces%20in%20it"),
        ("Zürich", b"%5a%c3%bcrich"),
        ("100%", b"100%25"),
        ("a:b", b"a%3ab"),
        ("x" * 200, b"x" * 200),
        ("*", b"%2a"),
        ("a*", b"a%2a"),
    ]
    for name, escaped in cases:
        with subtests.test(name=name):
            assert (b"x-oms-p-" + escaped, b"v") in encode(Message("orders", properties={name: "v"}))
            assert parse([(b"x-oms-p-" + escaped, b"v")]).properties == {name: "v"}


def test_a_property_name_that_cannot_be_one_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [
        b"",
        b"*",
        b"%",
        b"%4",
        b"%zz",
        b"a%",
        b"%ff",
        b"\xff",
        b"x" * 250,
        b"%78" * 250,
        b"n" * 250,
        ("ü" * 125).encode(),
        b"% 41",
    ]
    for name in cases:
        with subtests.test(name=name), pytest.raises(HeaderInvalid):
            parse([(b"x-oms-p-" + name, b"UTF-8''v")])


def test_printable_ascii_travels_as_it_is(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        *("100%", "a b", "%41", "UTF-8''x", "a*b", '"quoted"', "a,b", "a, b"),
        *('quote " and \\', "~!@#$^&*()", ""),
    ]
    for value in cases:
        with subtests.test(value=value):
            message = Message("orders", properties={"p": value}, correlation_id=value)
            pairs = [(b"x-oms-p-p", value.encode()), (b"x-oms-h-correlationid", value.encode())]
            assert set(pairs) <= set(encode(message))
            assert parse([DESTINATION, *pairs]).message(b"") == message


def test_the_profile_s_example_of_an_extended_value() -> None:
    assert (b"x-oms-p-city*", b"UTF-8''Z%C3%BCrich") in encode(Message("orders", properties={"city": "Zürich"}))


def test_an_extended_value_that_is_none_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [
        b"",
        b"x",
        b"UTF-8",
        b"UTF-8'x",
        b"ISO-8859-1''x",
        b"''x",
        b"UTF-8''%",
        b"UTF-8''%4",
        b"UTF-8''%g0",
        b"UTF-8''%ff",
        b"Z%C3%BCrich",
        b"UTF-8''Z%FCrich",
        b"UTF-8''Z%C3%B",
        b"latin-1''Z%FCrich",
    ]
    for raw in cases:
        with subtests.test(raw=raw):
            for name in (b"x-oms-p-a*", b"x-oms-h-messagekey*", b"x-oms-h-priority*"):
                with pytest.raises(HeaderInvalid):
                    parse([(name, raw)])


def test_an_extended_value_is_read_as_rfc_8187_says(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes, str]] = [
        (b"utf-8'de'Z%c3%bcrich", "Zürich"),
        (b"UTF-8''", ""),
        (b"UTF-8''a'b", "a'b"),
        (b"UTF-8''%EF%BB%BF", "\ufeff"),
    ]
    for raw, expected in cases:
        with subtests.test(raw=raw, expected=expected):
            assert parse([(b"x-oms-p-a*", raw)]).properties == {"a": expected}


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_a_property_typed_in_ascii_is_what_a_consumer_reads(value: str) -> None:
    assert parse([(b"x-oms-p-a", value.encode())]).properties == {"a": value}


def test_a_repeated_ordinary_header_is_joined() -> None:
    assert parse([(b"accept", b"a"), (b"accept", b"b"), (b"accept", b"c")]).plain == {b"accept": b"a, b, c"}


def test_the_version_is_1_x_y(subtests: pytest.Subtests) -> None:
    for text in ("1.0.0", "1.2.3", "1.0.99", "1.20.3", "1.0.123456789"):
        with subtests.test(text=text):
            parse([(b"x-oms-version", text.encode())]).require_version()


def test_another_version_is_not_served(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        *("", "1", "1.0", "1.0.0.0", "1..0", "1.0.", "1.0.0 ", "1.-1.0", "1.0.1234567890", "01.0.0"),
        *("2.0.0", "0.9.0", "one", "1.a.0", "v1.0.0", "1.0.0-beta", "1.0.0 beta", "1.0.0,1.0.0", "1." + "0" * 999),
    ]
    for text in cases:
        with subtests.test(text=text):
            with pytest.raises(VersionUnsupported, match=r"x-oms-version: .* is not supported; 1\.x\.y is") as refused:
                parse([(b"x-oms-version", text.encode())]).require_version()
            assert text[:20] in refused.value.detail


def test_a_version_that_is_no_text_is_refused() -> None:
    with pytest.raises(HeaderInvalid, match="x-oms-version"):
        parse([(b"x-oms-version", b"\xff")])
    with pytest.raises(HeaderInvalid, match="x-oms-version"):
        parse([(b"x-oms-version", "1.\u0661.0".encode())])


def test_a_version_of_half_a_surrogate_pair_is_not_served() -> None:
    with pytest.raises(VersionUnsupported):
        check_version("\ud800")


def test_a_missing_version_is_missing() -> None:
    with pytest.raises(HeaderMissing, match=r"x-oms-version is required.*1\.0\.0"):
        check_version(None)


def test_a_content_type_is_text_as_any_value(subtests: pytest.Subtests) -> None:
    for raw in (b"text/plain", b"multipart/related; boundary=b"):
        with subtests.test(raw=raw):
            assert parse([DESTINATION, (b"content-type", raw)]).message(b"").content_type == raw.decode()
    for raw in (b"text/\xff", "text/ü".encode(), b"text/plain\0"):
        with subtests.test(raw=raw), pytest.raises(HeaderInvalid, match="content-type"):
            parse([DESTINATION, (b"content-type", raw)]).message(b"")


def test_every_encoded_message_says_its_version() -> None:
    parse(encode(Message("orders"))).require_version()
    assert encode(Message("orders"))[0] == (b"x-oms-version", VERSION)


@given(st.text(st.characters()), st.integers(0, LONG_MAX))
def test_read_number_raises_nothing_but_header_invalid(text: str, maximum: int) -> None:
    error = refusal(lambda: read_number("n", text, maximum))
    if error is None:
        assert 0 <= int(text) <= maximum
    else:
        assert error.detail.isascii()


def test_a_trace_context_is_taken_only_when_it_is_one(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes | None, bytes | None, str | None, str | None]] = [
        (PARENT, None, PARENT.decode(), None),
        (PARENT, b"a=b", PARENT.decode(), "a=b"),
        (PARENT, b"", PARENT.decode(), ""),
        (PARENT, b"\xc3\xbc=b", PARENT.decode(), None),
        (PARENT[:-1], b"a=b", None, None),
        (b"", b"a=b", None, None),
        (None, b"a=b", None, None),
    ]
    for parent, state, found_parent, found_state in cases:
        with subtests.test(parent=parent, state=state):
            given = ((b"traceparent", parent), (b"tracestate", state))
            message = parse([DESTINATION, *((name, raw) for name, raw in given if raw is not None)]).message(b"")
            assert (message.traceparent, message.tracestate) == (found_parent, found_state)


def test_an_ordinary_header_of_a_message_is_written_only_when_http_can_carry_it(subtests: pytest.Subtests) -> None:
    octets, parent = "application/octet-stream", PARENT.decode()
    cases: list[tuple[dict[str, str], dict[str, str]]] = [
        ({}, {"content-type": octets}),
        ({"content_type": ""}, {"content-type": octets}),
        ({"content_type": " "}, {"content-type": octets}),
        ({"content_type": " text/plain "}, {"content-type": "text/plain"}),
        ({"content_type": "text/ü"}, {"content-type": octets}),
        ({"content_type": "text/\t"}, {"content-type": octets}),
        ({"traceparent": parent}, {"content-type": octets, "traceparent": parent}),
        ({"traceparent": parent[:-1]}, {"content-type": octets}),
        ({"tracestate": "a=b"}, {"content-type": octets}),
        ({"traceparent": parent, "tracestate": ""}, {"content-type": octets, "traceparent": parent}),
        ({"traceparent": parent, "tracestate": "ü"}, {"content-type": octets, "traceparent": parent}),
        (
            {"traceparent": parent, "tracestate": "a=b"},
            {"content-type": octets, "traceparent": parent, "tracestate": "a=b"},
        ),
    ]
    for fields, written in cases:
        with subtests.test(fields=fields):
            found = {n.decode(): v.decode() for n, v in encode(Message("o", **fields))}  # type: ignore[arg-type]
            assert found == {"x-oms-version": "1.0.0", "x-oms-h-destination": "o", **written}


def test_the_content_type_of_no_content_type_is_left_out() -> None:
    octets = (b"content-type", b"application/octet-stream")
    assert parse([DESTINATION, octets]).message(b"").content_type is None
    assert parse([DESTINATION]).message(b"").content_type is None


def test_headers_of_a_safe_size_need_no_check(subtests: pytest.Subtests) -> None:
    """The headers that grow the most when they are sent to a consumer."""
    cases: list[list[tuple[bytes, bytes]]] = [
        [(b"x-oms-p-%d" % number, b"") for number in range(1000)],
        [(b"x-oms-p-" + b"!" * 83, b"a\t"), (b"x-oms-p-a*", b"UTF-8''%0A" + b"(" * 5000)],
        [(b"x-oms-h-messagekey", b"\t" * 5000), (b"x-oms-h-bornhost*", b"UTF-8''%F0%9F%98%80" + b" " * 5000)],
        [(b"content-type", b"t" * 5000), (b"traceparent", PARENT), (b"tracestate", b"s" * 5000)],
    ]
    for pairs in cases:
        with subtests.test(str(pairs)[:60]):
            received = sum(len(name) + len(value) for name, value in (DESTINATION, *pairs))
            limit = next(limit for limit in range(received, 100_000) if largest_safe_size(limit) >= received)
            message = parse([DESTINATION, *pairs]).message(b"")
            full: dict[str, Any] = {f.attribute: f.maximum for f in NUMBERS}
            check_size(message._replace(**full, message_id="i" * 36, store_host="h" * 259), limit)


def test_headers_of_just_the_limit_are_taken_and_one_byte_more_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[dict[str, object]] = [
        {"properties": {"name": "v" * 30}},
        {"properties": {"ü" * 30: "ü"}},
        {"properties": {f"p{number}": "" for number in range(300)}},
        {"content_type": "v" * 20_000},
        {"traceparent": PARENT.decode(), "tracestate": "v" * 20_000},
    ]
    names = ("message_key", "correlation_id", "trace_id", "transaction_id", "message_id", "born_host")
    cases += [{name: "ü" * 2000} for name in names]
    for fields in cases:
        message = Message("orders")._replace(**fields)  # type: ignore[arg-type]
        size = sum(len(name) + len(value) + 32 for name, value in encode(message))
        with subtests.test(fields=fields):
            check_size(message, size)
            with pytest.raises(HeadersTooLarge, match=f"take {size} bytes, .* at most {size - 1} are allowed"):
                check_size(message, size - 1)
            check_size(message, 1 << 20)
