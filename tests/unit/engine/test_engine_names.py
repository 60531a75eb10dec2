import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.engine.destination_names import NAME_MAX, check_name, dead_letter_of, is_dead_letter
from bridge.errors import DestinationInvalid

LEGAL = st.text("ABCXYZabcxyz0123456789._-", min_size=1, max_size=NAME_MAX)


def test_a_legal_name_is_returned(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        *("a", "A.b_c-9", "-", "...", "orders.dlq", "Amq.x", "_x", "amq", "oms-x"),
        *("x" * 249, "Az_0-9.".ljust(249, "x")),
    ]
    for name in cases:
        with subtests.test(name=name):
            assert check_name(name, "x-oms-source") == name


def test_an_illegal_name_is_refused_every_time(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        *("", ".", "..", "x" * 250, "a b", "a/b", "a*", "*", "a\n", "a\0", "ü", "über", "\u0661", "\ud800"),
        *("__x", "__internal", "__consumer_offsets", "amq.x", "amq.topic", "amq.direct", "oms.x", "oms.own"),
    ]
    for name in cases:
        with subtests.test(name=name):
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


def test_a_long_name_is_cut_and_hashed(subtests: pytest.Subtests) -> None:
    cases: list[tuple[int, bool]] = [(1, False), (245, False), (246, True), (249, True)]
    for length, cut in cases:
        with subtests.test(length=length, cut=cut):
            name = "x" * length
            assert (dead_letter_of(name) == f"{name}.dlq") is not cut
            assert len(dead_letter_of(name)) == min(length + 4, NAME_MAX)


def test_two_long_names_that_begin_alike_have_two_dead_letter_destinations() -> None:
    assert dead_letter_of("x" * 248 + "a") != dead_letter_of("x" * 248 + "b")


def test_dead_letter_destinations_keep_their_names() -> None:
    """They exist on brokers: another release must find them."""
    assert dead_letter_of("x" * 249) == f"{'x' * 232}.e1c28f9cebda.dlq"
