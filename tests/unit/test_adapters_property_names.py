"""Names of properties as headers of their own, and the names that this cannot have."""

import pytest

from adapters.native_headers import HEADERS_DROPPED, HEADERS_MAX, add_properties
from adapters.property_names import PlainNames, parse_property_names

NAMES = PlainNames({"traceparent", "x-death"})


def test_the_option_has_two_values() -> None:
    assert [parse_property_names(text) for text in ("prefixed", "plain")] == ["prefixed", "plain"]
    with pytest.raises(ValueError, match="one of prefixed, plain"):
        parse_property_names("Plain")


@pytest.mark.parametrize("name", ["region", "Traceparent", "oms", "oms_left_out", "OMS_H_priority", "x-dead", "#1"])
def test_a_free_name_is_the_header(name: str) -> None:
    assert NAMES.refusal(name) is None
    assert NAMES.header(name) == name


@pytest.mark.parametrize("name", ["traceparent", "x-death", "oms_h_", "oms_h_any", "oms_p_region", "oms_d_due"])
def test_a_reserved_name_is_refused_and_the_header_of_a_dead_letter_keeps_the_prefix(name: str) -> None:
    refusal = NAMES.refusal(name)
    assert refusal is not None
    assert refusal.startswith(f"the property {name} would collide")
    assert "oms_h_…, oms_p_…, oms_d_…, traceparent, x-death." in refusal
    assert NAMES.header(name) == f"oms_p_{name}"


def test_headers_of_a_bridge_are_kept_whole() -> None:
    headers = [(f"p{number}", bytes(100)) for number in range(HEADERS_MAX // 100)]
    native: dict[str, str] = {}
    add_properties(native, headers)
    own: dict[str, str] = {}
    add_properties(own, headers, native=False)
    assert HEADERS_DROPPED in native
    assert len(own) == len(headers)
    assert HEADERS_DROPPED not in own
