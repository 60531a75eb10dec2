"""Every sentence that ends a start has its entry, and every entry is a sentence of the code."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.docs.commands import ROOT
from tests.docs.page import Page

PAGE: Final = Page("troubleshooting.md")
SECTIONS: Final = ("Settings", "Ports and servers", "Backends", "The mirror", "Working with a mirror")
ENDS: Final = ("CannotStart", "JournalCorrupt")
"""Exceptions that end a process."""
LEAST: Final = 12
"""Characters that a sentence has at least, apart from what is filled in: a shorter one shows another one's text."""


def shown() -> Iterator[str]:
    """Yield the sentences of the tables."""
    for section in SECTIONS:
        for row in PAGE.table(section):
            assert len(row) in {2, 3}, row
            assert all(row), row
            yield row[0].split("`")[-2]


def said(node: ast.AST) -> str:
    """Return a text of the code; what differs as `…`."""
    text = ""
    if isinstance(node, ast.JoinedStr):
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    elif isinstance(node, ast.Constant):
        text = str(node.value)
    return re.sub(r"\{\w+\}", "…", text)  # of a template for `str.format`


def everything() -> Iterator[tuple[str, str]]:
    """Yield every text of the code, and before it the name of what is called if it is the last argument."""
    for folder in ("bridge", "adapters"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                yield "", said(node)
                if isinstance(node, ast.Call) and node.args:
                    yield getattr(node.func, "id", getattr(node.func, "attr", "")), said(node.args[-1])


TEXTS: Final = [(name, re.sub(r"…+( …)*", "…", text)) for name, text in set(everything()) if len(text) >= LEAST]
SENTENCES: Final = [*shown()]


def test_every_sentence_is_one_of_the_code() -> None:
    assert len(SENTENCES) > 50
    assert [sentence for sentence in SENTENCES if not any(_same(sentence, text) for _, text in TEXTS)] == []


def test_every_sentence_that_ends_a_start_is_shown() -> None:
    ending = sorted({text for name, text in TEXTS if name in ENDS})
    assert len(ending) > 50
    assert [text for text in ending if not any(_same(sentence, text) for sentence in SENTENCES)] == []


def _same(sentence: str, text: str) -> bool:
    """Compare without what is filled in at the beginning and the end: the page may show the middle of a text."""
    return len(sentence.replace("…", "")) >= LEAST and sentence.strip("… ") in text
