import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.engine.names import NAME_MAX, check_name, dead_letter_of, is_dead_letter
from bridge.errors import DestinationInvalid

LEGAL = st.text("ABCXYZabcxyz0123456789._-", min_size=1, max_size=NAME_MAX)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "-", "...", "x" * 249, "orders.dlq", "Amq.x", "_x", "amq", "oms-x"])
def test_a_legal_name_is_returned(name: str) -> None:
    assert check_name(name, "x-oms-source") == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a b", "a/b", "a\n", "ü", "\u0661", "\ud800", "__x", "amq.x", "oms.x", "a\0"]
)
def test_an_illegal_name_is_refused_every_time(name: str) -> None:
    for _ in range(2):
        with pytest.raises(DestinationInvalid, match="x-oms-source") as refused:
            check_name(name, "x-oms-source")
        assert refused.value.detail.isascii()


@given(LEGAL)
def test_a_dead_letter_destination_is_a_legal_name_of_its_own(name: str) -> None:
    grave = dead_letter_of(name)
    assert len(grave) <= NAME_MAX
    assert is_dead_letter(grave)
    assert set(grave) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


@pytest.mark.parametrize(("length", "cut"), [(1, False), (245, False), (246, True), (249, True)])
def test_a_long_name_is_cut_and_hashed(length: int, cut: bool) -> None:
    name = "x" * length
    assert (dead_letter_of(name) == f"{name}.dlq") is not cut
    assert len(dead_letter_of(name)) == min(length + 4, NAME_MAX)


def test_two_long_names_that_begin_alike_have_two_dead_letter_destinations() -> None:
    assert dead_letter_of("x" * 248 + "a") != dead_letter_of("x" * 248 + "b")
