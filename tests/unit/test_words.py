"""The check of words finds each kind of place, and passes over quoted code."""

import pytest

from tests.words.__main__ import TABLE, findings


@pytest.mark.parametrize(
    ("path", "source", "line", "word"),
    [
        ("docs/page.md", "# Title\n\nIt waits for\never.\n", 3, "“for ever”"),
        ("helm/chart/values.yaml", "a: 1\n# nobody may\n# mend it\nb: 2\n", 3, "“mend”"),
        ("bridge/a.py", '"""Whoever reads it."""\n', 1, "“whoever”"),
        ("bridge/a.py", 'A = 1\n"""Seconds, of\nits own."""\n', 2, "“of its own”"),
        ("bridge/a.py", "A = 1  # waits in\nB = 2\n# it is in\n# vain\n", 3, "“in vain”"),
        ("bridge/a.py", 'raise E(f"{name} comes back " "by itself")\n', 1, "“by itself”"),
        ("bridge/a.py", "class FrontDoor: ...\n", 1, "`door` in the name `FrontDoor`"),
        ("bridge/a.py", "def f(x, HOUSE): ...\n", 1, "`house` in the name `HOUSE`"),
        ("bridge/a.py", "self._has_gone = 1\n", 1, "`gone` in the name `_has_gone`"),
        ("tests/a/test_b.py", '"""Lest it fails."""\nwhoever = "whoever comes first"\n', 1, "“lest”"),
        ("tests/conformance/test_b.py", 'assert a, "without a word to me"\n', 1, "“without a word”"),
    ],
)
def test_a_word_is_found_and_nothing_else(path: str, source: str, line: int, word: str) -> None:
    assert [(found.line, found.word) for found in findings(path, source)] == [(line, word)]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("docs/page.md", "`whoever` is quoted\n```\nmend\n```\n"),
        ("bridge/a.py", "A = 'mend'  # `door` was its name\n"),
        ("bridge/a.py", "# it waits for\nA = 1\n# ever since\n"),
        ("bridge/a.py", "indoors = outhouse = 1\nx.door\n"),
        ("tests/words/README.md", "whoever\n"),
    ],
)
def test_other_places_are_left_alone(path: str, source: str) -> None:
    assert [*findings(path, source)] == []


def test_the_table_says_what_to_write_instead() -> None:
    assert all([*TABLE["phrases"].values(), *TABLE["names"].values()])
    assert set(TABLE["names"]) >= {"door", "house", "keeper", "courier", "asked"}
