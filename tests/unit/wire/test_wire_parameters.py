from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import HeaderInvalid, HeaderMissing, HeaderRepeated
from bridge.message import LONG_MAX
from bridge.wire.headers import PARAMETERS
from bridge.wire.parameters import RECEIPTS_MAX, flag, merge, number, receipts, text
from tests.unit.strategies import refusal


@given(st.dictionaries(st.sampled_from(sorted(PARAMETERS)), st.text(max_size=10)))
def test_a_query_says_what_headers_would_say(parameters: dict[str, str]) -> None:
    assert merge({}, urlencode(parameters).encode()) == parameters
    assert merge(parameters, urlencode(parameters).encode()) == parameters


def test_a_header_and_a_parameter_that_agree_are_no_repetition() -> None:
    assert merge({"source": "a", "ack": "true"}, b"source=a&waitmills=5") == {
        "source": "a",
        "ack": "true",
        "waitmills": "5",
    }


@pytest.mark.parametrize("query", [b"source=b", b"source=a&source=a", b"SOURCE=b", b"source="])
def test_different_values_and_repeated_parameters_are_refused(query: bytes) -> None:
    with pytest.raises(HeaderRepeated):
        merge({"source": "a"}, query)


@pytest.mark.parametrize(
    "query", [b"sauce=a", b"x-oms-source=a", b"\xff=1", b"source=%ff", b"&".join([b"a=1"] * 65), b"=1"]
)
def test_a_query_that_names_no_parameter_is_refused(query: bytes) -> None:
    with pytest.raises(HeaderInvalid):
        merge({}, query)


@given(st.binary(max_size=60))
def test_no_query_raises_anything_but_the_error_tree(query: bytes) -> None:
    error = refusal(lambda: merge({"source": "a"}, query))
    assert error is None or error.detail.isascii()


@pytest.mark.parametrize(
    ("given_text", "expected"), [("true", True), ("TRUE", True), ("false", False), ("False", False)]
)
def test_a_flag_is_true_or_false(given_text: str, expected: bool) -> None:
    assert flag({"ack": given_text}, "ack") is expected
    assert flag({}, "ack") is False


@pytest.mark.parametrize("given_text", ["", "1", "yes", " true", "tru\u00e9"])
def test_a_flag_that_is_neither_is_refused(given_text: str) -> None:
    with pytest.raises(HeaderInvalid):
        flag({"ack": given_text}, "ack")


def test_a_number_has_a_default_and_a_range() -> None:
    assert number({}, "waitmills", 7) == 7
    assert number({"waitmills": str(LONG_MAX)}, "waitmills", 7) == LONG_MAX
    for wrong in ("", "-1", "1.0", str(LONG_MAX + 1)):
        with pytest.raises(HeaderInvalid, match="waitmills"):
            number({"waitmills": wrong}, "waitmills", 7)


def test_a_required_parameter_is_missed() -> None:
    assert text({"source": ""}, "source", "where from") == ""
    with pytest.raises(HeaderMissing, match="where from"):
        text({}, "source", "where from")


def test_receipts_come_one_or_several_separated_by_commas() -> None:
    assert receipts({}) == []
    assert receipts({"receipt": "a"}) == ["a"]
    assert receipts({"receipt": "a, b ,c"}) == ["a", "b", "c"]
    assert len(receipts({"receipt": ",".join(["a"] * RECEIPTS_MAX)})) == RECEIPTS_MAX
    for wrong in ("", ",", "a,", "a,,b", ",".join(["a"] * (RECEIPTS_MAX + 1))):
        with pytest.raises(HeaderInvalid):
            receipts({"receipt": wrong})
