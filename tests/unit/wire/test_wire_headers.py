import string
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.errors import HeaderInvalid, HeaderMissing, HeaderRepeated, VersionUnsupported
from bridge.message import FIELDS, INTEGER_MAX, LONG_MAX, Field, Message
from bridge.wire.headers import PARAMETERS, VERSION, check_size, check_version, encode, parse, read_number
from tests.unit.strategies import broker_messages, messages, refusal

TOKEN: Final = frozenset((string.ascii_lowercase + string.digits + "!#$%&'*+-.^_`|~").encode())
NUMBERS: Final = tuple(f for f in FIELDS if f.maximum is not None)
STRINGS: Final = tuple(f for f in FIELDS if f.maximum is None)
DESTINATION: Final = (b"x-oms-h-destination", b"orders")


def header(field: Field) -> bytes:
    return f"x-oms-h-{field.name.lower()}".encode()


def by_name(fields: tuple[Field, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("field", fields, ids=[f.name for f in fields])


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


@pytest.mark.parametrize(
    ("name", "maximum"),
    [
        *[(name, LONG_MAX) for name in ("bornTimestamp", "storeTimestamp", "delayTime", "expireTime")],
        *[(name, INTEGER_MAX) for name in ("partition", "priority", "deliveryCount")],
        ("qos", 2),
        ("durability", 1),
    ],
)
def test_each_number_has_the_range_of_its_type(name: str, maximum: int) -> None:
    assert {f.name: f.maximum for f in NUMBERS}[name] == maximum


@by_name(FIELDS)
def test_a_field_that_did_not_come_is_none(field: Field) -> None:
    if field.name == "destination":
        with pytest.raises(HeaderMissing):
            parse([]).message(b"")
    else:
        assert getattr(parse([DESTINATION]).message(b""), field.attribute) is None


@by_name(NUMBERS)
def test_a_number_is_read_up_to_its_maximum(field: Field) -> None:
    assert field.maximum is not None
    for number in (0, 1, field.maximum):
        assert parse([(header(field), b"%d" % number)]).fields == {field.attribute: number}
        assert parse([(header(field) + b"*", b"UTF-8''%d" % number)]).fields == {field.attribute: number}


@by_name(NUMBERS)
@pytest.mark.parametrize(
    "text", ["", "-1", "+1", " 1", "1 ", "1_0", "1.0", "1e3", "0x1", "\u0661", "²", "one", "NaN", "1\t", "true"]
)
def test_a_number_that_is_not_plain_digits_is_refused(field: Field, text: str) -> None:
    for name, raw in ((header(field), text.encode()), (header(field) + b"*", b"UTF-8''" + text.encode())):
        with pytest.raises(HeaderInvalid, match=header(field).decode()):
            parse([(name, raw)])


@by_name(NUMBERS)
def test_a_number_beyond_its_range_is_refused(field: Field) -> None:
    assert field.maximum is not None
    for raw in (b"%d" % (field.maximum + 1), b"%d" % 10**19, b"9" * 5000):
        with pytest.raises(HeaderInvalid, match="out of range"):
            parse([(header(field), raw)])


@by_name(STRINGS)
def test_an_empty_string_is_refused_where_the_binding_requires_one(field: Field) -> None:
    for name, raw in ((header(field), b""), (header(field) + b"*", b"UTF-8''")):
        if field.required:
            with pytest.raises(HeaderInvalid, match="empty"):
                parse([(name, raw)])
        else:
            assert parse([(name, raw)]).fields == {field.attribute: ""}


@by_name(STRINGS)
def test_raw_utf_8_is_accepted_and_other_bytes_are_not(field: Field) -> None:
    assert parse([(header(field), "Zürich".encode())]).fields == {field.attribute: "Zürich"}
    for raw in (b"Z\xfcrich", b"a\r\nb", b"a\nb", b"a\0b", b"\x7f"):
        with pytest.raises(HeaderInvalid, match=header(field).decode()):
            parse([(header(field), raw)])


@by_name(STRINGS)
def test_a_control_character_travels_extended(field: Field) -> None:
    message = Message("orders")._replace(**{field.attribute: "a\r\n\0b"})  # type: ignore[arg-type]
    assert (header(field) + b"*", b"UTF-8''a%0D%0A%00b") in encode(message)
    assert parse(encode(message)).message(b"") == message


@by_name(FIELDS)
def test_a_repeated_field_is_refused_in_every_pair_of_forms(field: Field) -> None:
    plain, extended = (header(field), b"1"), (header(field) + b"*", b"UTF-8''1")
    for pairs in ([plain, plain], [plain, extended], [extended, plain], [extended, extended]):
        with pytest.raises(HeaderRepeated, match=header(field).decode()):
            parse(pairs)


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_a_parameter_is_kept_as_text_and_refused_when_repeated(name: str) -> None:
    pair = (b"x-oms-" + name.encode(), b" 1 ")
    assert parse([pair]).parameters == {name: " 1 "}
    with pytest.raises(HeaderRepeated):
        parse([pair, pair])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b"x-oms-p-a", b"x-oms-p-a"),
        (b"x-oms-p-a", b"x-oms-p-%61"),
        (b"x-oms-p-%4f", b"x-oms-p-%4F"),
        (b"x-oms-p-a", b"x-oms-p-a*"),
        (b"x-oms-p-%61*", b"x-oms-p-a"),
    ],
)
def test_two_spellings_of_one_property_are_a_repetition(first: bytes, second: bytes) -> None:
    pairs = [(name, b"UTF-8''1" if name.endswith(b"*") else b"1") for name in (first, second)]
    with pytest.raises(HeaderRepeated):
        parse(pairs)


@pytest.mark.parametrize(
    "name",
    [
        b"x-oms-",
        b"x-oms-h-",
        b"x-oms-h-prioritty",
        b"x-oms-sourc",
        b"x-oms-source*",
        b"x-oms-h-priority**",
        b"x-oms-h-\xff",
    ],
)
def test_an_unknown_oms_header_is_a_mistyped_one(name: bytes) -> None:
    with pytest.raises(HeaderInvalid, match="not a header"):
        parse([(name, b"1")])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"x-oms-p-orderid", "orderid"),
        (b"x-oms-p-%4frder%49d", "OrderId"),
        (b"x-oms-p-%2a", "*"),
        (b"x-oms-p-%25", "%"),
        (b"x-oms-p-" + "ü".encode(), "ü"),
        (b"x-oms-p-" + b"%78" * 249, "x" * 249),
    ],
)
def test_a_property_name_is_kept_exactly(name: bytes, expected: str) -> None:
    assert parse([(name, b"v")]).properties == {expected: "v"}


@pytest.mark.parametrize(
    "name",
    [b"", b"*", b"%", b"%4", b"%zz", b"a%", b"%ff", b"\xff", b"x" * 250, b"%78" * 250, ("ü" * 125).encode(), b"% 41"],
)
def test_a_property_name_that_cannot_be_one_is_refused(name: bytes) -> None:
    with pytest.raises(HeaderInvalid):
        parse([(b"x-oms-p-" + name, b"UTF-8''v")])


@pytest.mark.parametrize("value", ["100%", "a b", "%41", "UTF-8''x", "a*b", '"quoted"', "a,b"])
def test_printable_ascii_travels_as_it_is(value: str) -> None:
    pairs = encode(Message("orders", properties={"p": value}))
    assert (b"x-oms-p-p", value.encode()) in pairs


def test_the_profile_s_example_of_an_extended_value() -> None:
    assert (b"x-oms-p-city*", b"UTF-8''Z%C3%BCrich") in encode(Message("orders", properties={"city": "Zürich"}))


@pytest.mark.parametrize(
    "raw",
    [
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
    ],
)
def test_an_extended_value_that_is_none_is_refused(raw: bytes) -> None:
    for name in (b"x-oms-p-a*", b"x-oms-h-messagekey*", b"x-oms-h-priority*"):
        with pytest.raises(HeaderInvalid):
            parse([(name, raw)])


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(b"utf-8'de'Z%c3%bcrich", "Zürich"), (b"UTF-8''", ""), (b"UTF-8''a'b", "a'b"), (b"UTF-8''%EF%BB%BF", "\ufeff")],
)
def test_an_extended_value_is_read_as_rfc_8187_says(raw: bytes, expected: str) -> None:
    assert parse([(b"x-oms-p-a*", raw)]).properties == {"a": expected}


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_a_property_typed_in_ascii_is_what_a_consumer_reads(value: str) -> None:
    assert parse([(b"x-oms-p-a", value.encode())]).properties == {"a": value}


def test_a_repeated_ordinary_header_is_joined() -> None:
    assert parse([(b"accept", b"a"), (b"accept", b"b")]).plain == {b"accept": b"a, b"}


@pytest.mark.parametrize(("text", "served"), [("1.0.0", True), ("1.20.3", True), ("1.0", False), ("2.0.0", False)])
def test_the_version_is_1_x_y(text: str, served: bool) -> None:
    headers = parse([(b"x-oms-version", text.encode())])
    if served:
        headers.require_version()
    else:
        with pytest.raises(VersionUnsupported):
            headers.require_version()


@pytest.mark.parametrize(
    "text", ["", "1", "1.0.0.0", "1..0", "1.0.", "1.0.0 ", "1.-1.0", "1.\u0661.0", "1.0.1234567890", "01.0.0"]
)
def test_what_looks_like_a_version_is_not_served(text: str) -> None:
    with pytest.raises(VersionUnsupported):
        check_version(text)


def test_a_missing_version_is_missing() -> None:
    with pytest.raises(HeaderMissing):
        check_version(None)


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
