"""Every error code and every sentence that ends a start has its entry, and no entry is of something that is none."""

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from bridge.errors import BridgeError
from bridge.http.schemas import leaves
from tests.docs.commands import ROOT
from tests.docs.page import Page

PAGE: Final = Page("troubleshooting.md")
ERRORS: Final = leaves(BridgeError)
SECTIONS: Final = ("Settings", "Ports and servers", "Backends", "The mirror", "Working with a mirror")
ENDS: Final = ("CannotStart", "JournalCorrupt")
"""What ends a process for good."""
LEAST: Final = 12
"""Characters without which a sentence says nothing of its own: what it shows comes from elsewhere."""


def codes() -> list[str]:
    _, _, rest = PAGE.text.partition("\n## Error codes\n")
    return re.findall(r"^### ([a-z-]+)$", rest.partition("\n## ")[0], re.MULTILINE)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_an_error_has_its_entry(error: type[BridgeError]) -> None:
    entry = PAGE.section(error.code)
    assert re.match(rf"\n{error.status}\. \*\*Cause:\*\* \S.*\n\*\*Do:\*\* \S", entry)


def test_no_entry_is_of_an_error_that_is_none() -> None:
    assert codes() == list(dict.fromkeys(codes()))
    assert set(codes()) == {error.code for error in ERRORS}


def shown() -> Iterator[str]:
    """Yield the sentences of the tables."""
    for section in SECTIONS:
        for row in PAGE.table(section):
            assert len(row) == 3, row
            assert all(row), row
            yield row[0].split("`")[-2]


def said(node: ast.AST) -> str:
    """Return a text of the code; what differs as `…`."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else ""


def everything() -> Iterator[tuple[str, str]]:
    """Yield every text of the code; with the name of what is called where it is an argument."""
    for folder in ("bridge", "adapters"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                yield "", said(node)
                if isinstance(node, ast.Call) and node.args:
                    yield getattr(node.func, "id", getattr(node.func, "attr", "")), said(node.args[-1])


TEXTS: Final = [*everything()]
SENTENCES: Final = [*shown()]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_is_one_of_the_code(sentence: str) -> None:
    assert any(_same(sentence, text) for _, text in TEXTS)


@pytest.mark.parametrize("text", sorted({text for name, text in TEXTS if name in ENDS and len(text) >= LEAST}))
def test_a_sentence_that_ends_a_start_is_shown(text: str) -> None:
    assert any(_same(sentence, text) for sentence in SENTENCES)


def _same(sentence: str, text: str) -> bool:
    """Compare without what differs at the beginning and the end: what is shown may be the middle of a text."""
    return len(sentence.replace("…", "")) >= LEAST and sentence.strip("… ") in re.sub(r"…+( …)*", "…", text)
