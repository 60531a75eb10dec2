"""What reads each option of a backend's URL."""

from pathlib import Path

import pytest

from adapters.url_options import one_of, password_in, printable, readable, short_name, switch, whole_number


def test_a_whole_number_has_a_range(subtests: pytest.Subtests) -> None:
    read = whole_number(5, 120)
    assert [read(text) for text in ("5", "005", "99", "120")] == [5, 5, 99, 120]
    cases: list[str] = [
        "4",
        "121",
        "0120",
        "",
        " 9",
        "+9",
        "-9",
        "9.0",
        "0x9",
        "\u0669",
        "²",
        "9" * 5000,
        "1_0",
        "nine",
    ]
    for text in cases:
        with (
            subtests.test(text=text),
            pytest.raises(ValueError, match=r"^the value must be a whole number from 5 to 120,"),
        ):
            read(text)


def test_one_of_some_words() -> None:
    read = one_of("all", "1")
    assert [read("all"), read("1")] == ["all", "1"]
    for text in ("", "ALL", "al", "all,1"):
        with pytest.raises(ValueError, match=r"^the value must be one of all, 1$"):
            read(text)


def test_a_switch_is_true_or_false() -> None:
    assert [switch("true"), switch("false")] == [True, False]
    for text in ("", "True", "1", "yes"):
        with pytest.raises(ValueError, match=r"^the value must be true or false$"):
            switch(text)


def test_a_short_name_is_a_piece_of_a_topic_s() -> None:
    for text in ("a", "Az09._-", "x" * 100):
        assert short_name(text) == text
    for text in ("", "x" * 101, "a b", "a/b", "ü", "a\n"):
        with pytest.raises(ValueError, match="1 to 100 characters of A-Z"):
            short_name(text)


def test_free_text_is_printable() -> None:
    assert [printable(text) for text in ("a b", "ü")] == ["a b", "ü"]
    for text in ("", "a\n", "\0"):
        with pytest.raises(ValueError, match="it is empty, or holds"):
            printable(text)


def test_files_are_read_when_the_url_is(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.write_text(" secret \n\n")
    assert readable(str(held)) == held
    assert password_in(str(held)) == "secret"
    for path, reason in (("missing", "No such file or directory"), ("", "Is a directory"), ("a\0b", "not a path")):
        with pytest.raises(ValueError, match=rf"^the file cannot be read \({reason}\)$"):
            readable(f"{tmp_path}/{path}")
    for wrong in (b"", b" \n", b"one\ntwo", b"\xff"):
        held.write_bytes(wrong)
        with pytest.raises(ValueError, match=r"^the file must hold one line of text, the password$"):
            password_in(str(held))
