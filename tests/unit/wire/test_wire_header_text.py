from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import HeaderInvalid
from bridge.wire.header_text import (
    NAME_BYTES_MAX,
    decode_extended,
    decode_name,
    decode_value,
    encode_name,
    encode_value,
    is_traceparent,
    printable,
    unquote_strictly,
)
from tests.unit.strategies import broken_texts, names, refusal, texts

PARENT = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"


@given(names)
def test_a_name_survives_its_escaping(name: str) -> None:
    assert decode_name(encode_name(name)) == name


@given(texts)
def test_a_value_survives_its_encoding(text: str) -> None:
    extended, raw = encode_value(text)
    assert (decode_extended if extended else decode_value)(b"x", raw) == text


@given(broken_texts)
def test_a_text_that_is_no_text_is_written_all_the_same(text: str) -> None:
    for raw in (encode_name(text), encode_value(text)[1]):
        assert raw.isascii()
        assert raw.decode().isprintable()


def test_only_what_a_field_value_cannot_hold_is_extended(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, bool]] = [
        ("", False),
        ("a b", False),
        (" a", True),
        ("a ", True),
        ("\t", True),
        ("\x7f", True),
        ("é", True),
        ("~", False),
    ]
    for text, extended in cases:
        with subtests.test(text=text, extended=extended):
            assert encode_value(text)[0] is extended


DECODERS: list[Callable[[bytes], object]] = [
    decode_name,
    lambda raw: decode_value(b"x", raw),
    lambda raw: decode_extended(b"x", raw),
    lambda raw: decode_extended(b"x", b"UTF-8''" + raw),
    lambda raw: unquote_strictly(raw, "x"),
]


@given(st.one_of(st.binary(max_size=300), st.text(max_size=20).map(str.encode)), st.sampled_from(DECODERS))
def test_no_bytes_raise_anything_but_header_invalid(raw: bytes, decode: Callable[[bytes], object]) -> None:
    error = refusal(lambda: decode(raw))
    assert error is None or error.detail.isascii()


@given(st.binary(max_size=300))
def test_what_is_shown_of_a_client_s_bytes_is_short_and_printable(raw: bytes) -> None:
    shown = printable(raw)
    assert shown.isascii()
    assert not shown or shown.isprintable()
    assert len(shown) <= 80 * 4


def test_a_name_has_at_most_249_bytes_after_its_escapes_are_undone() -> None:
    assert len(decode_name(b"%41" * NAME_BYTES_MAX)) == NAME_BYTES_MAX == 249
    with pytest.raises(HeaderInvalid):
        decode_name(b"%41" * (NAME_BYTES_MAX + 1))


def test_a_traceparent_of_any_version_but_ff_is_one(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [
        PARENT,
        b"01" + PARENT[2:],
        b"01" + PARENT[2:] + b"-what-ever",
        b"01" + PARENT[2:] + b"-!~",
        b"fe" + PARENT[2:],
        b"f0" + PARENT[2:],
        b"00-" + b"0" * 31 + b"1-" + b"0" * 15 + b"1-00",
    ]
    for raw in cases:
        with subtests.test(raw=raw):
            assert is_traceparent(raw)


def test_anything_else_is_no_traceparent(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [
        b"",
        PARENT[:-1],
        PARENT + b"-",
        b"ff" + PARENT[2:],
        PARENT.upper(),
        PARENT.replace(b"a", b"0"),
        PARENT.replace(b"b", b"0"),
        PARENT.replace(b"-", b"_"),
        *(PARENT[:place] + b"_" + PARENT[place + 1 :] for place in (2, 35, 52)),
        *(PARENT[:place] + b"g" + PARENT[place + 1 :] for place in (0, 1, 3, 34, 36, 51, 53, 54)),
        PARENT + b"-00",
        b"01" + PARENT[2:] + b"--\x7f",
        b"01" + PARENT[2:] + b"x",
        b"01" + PARENT[2:] + b"-\r\nset-cookie: x",
        b"01" + PARENT[2:] + b"- ",
        b"01" + PARENT[2:] + b"-\xff",
        b"0g" + PARENT[2:],
    ]
    for raw in cases:
        with subtests.test(raw=raw):
            assert not is_traceparent(raw)


@given(st.one_of(st.binary(max_size=70), st.binary(max_size=20).map(PARENT.__add__)))
def test_no_bytes_make_the_traceparent_check_raise(raw: bytes) -> None:
    if is_traceparent(raw):
        assert raw.isascii()
        assert raw.decode().isprintable()
