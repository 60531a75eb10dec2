"""The suite about itself: every sentence has a test or a reason, and no test knows a backend by its name."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from . import profile, semantics
from .not_yet import NOT_YET

_HERE: Final = Path(__file__).resolve().parent
_MARK: Final = re.compile(r"^\[([a-z0-9]+\.[a-z0-9-]+)\] ", re.MULTILINE)
_HEADING: Final = re.compile(r"^##? .*$", re.MULTILINE)
_NAMES: Final = re.compile(r"memory|kafka|rabbit|amqp", re.IGNORECASE)


def _sentences() -> dict[str, str]:
    found: dict[str, str] = {}
    for text in (semantics.TEXT, profile.TEXT):
        _, *parts = _MARK.split(_HEADING.sub("", text))
        for name, sentence in zip(parts[::2], parts[1::2], strict=True):
            assert name not in found, f"{name} stands there twice"
            found[name] = " ".join(sentence.split())
    return found


def _tests() -> Iterator[tuple[str, ast.AsyncFunctionDef | ast.FunctionDef]]:
    for path in sorted(_HERE.glob("test_*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, (ast.AsyncFunctionDef, ast.FunctionDef)) and node.name.startswith("test_"):
                yield f"{path.name}::{node.name}", node


def _quoted(docstring: str) -> list[str]:
    """Join the lines of each block of `> `."""
    blocks = re.split(r"\n\s*\n", docstring.strip())
    lines = ([line.strip() for line in block.splitlines()] for block in blocks)
    return [" ".join(part.removeprefix(">").strip() for part in block) for block in lines if block[0].startswith(">")]


SENTENCES: Final = _sentences()
IDS: Final = {sentence: name for name, sentence in SENTENCES.items()}
QUOTES: Final = {name: _quoted(ast.get_docstring(node) or "") for name, node in _tests() if "test_coverage" not in name}


@pytest.mark.parametrize("test", QUOTES)
def test_every_test_quotes_sentences_that_exist(test: str) -> None:
    assert QUOTES[test], "quote the sentence that the test is about, each line after `> `"
    for quote in QUOTES[test]:
        assert quote in IDS, f"this is no sentence of the two pages: {quote}"


def test_every_sentence_is_quoted_by_a_test_or_has_a_reason() -> None:
    quoted = {IDS[quote] for quotes in QUOTES.values() for quote in quotes if quote in IDS}
    assert quoted | {"meaning.suite"} | set(NOT_YET) == set(SENTENCES)
    assert not quoted & set(NOT_YET), "a sentence that has a test needs no reason"


def test_no_test_knows_a_backend_by_its_name() -> None:
    """
    > One conformance suite, keyed on capabilities and never on an adapter's name, runs on all three.
    """
    for test, node in _tests():
        body = node.body[1:] if ast.get_docstring(node) else node.body
        for inner in (inner for statement in body for inner in ast.walk(statement)):
            word = inner.id if isinstance(inner, ast.Name) else inner.value if isinstance(inner, ast.Constant) else ""
            assert not (isinstance(word, str) and _NAMES.search(word)), f"{test} says {word!r}"
