"""The suite about itself: every sentence has a test or a reason, and no test names a backend."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

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
    return [
        " ".join(part.removeprefix(">").strip() for part in block)
        for block in lines
        if block and block[0].startswith(">")
    ]


SENTENCES: Final = _sentences()
IDS: Final = {sentence: name for name, sentence in SENTENCES.items()}
QUOTES: Final = {name: _quoted(ast.get_docstring(node) or "") for name, node in _tests() if "test_coverage" not in name}


def test_every_test_quotes_a_sentence() -> None:
    assert len(QUOTES) > 100
    silent = [test for test, quotes in QUOTES.items() if not quotes]
    assert silent == [], "quote the sentence that the test is about, each line after `> `"


def test_every_quote_is_a_sentence_of_the_two_pages() -> None:
    unknown = {test: [quote for quote in quotes if quote not in IDS] for test, quotes in QUOTES.items()}
    assert {test: quotes for test, quotes in unknown.items() if quotes} == {}


def test_every_sentence_is_quoted_by_a_test_or_has_a_reason() -> None:
    quoted = {IDS[quote] for quotes in QUOTES.values() for quote in quotes if quote in IDS} | {"meaning.suite"}
    assert set(SENTENCES) - quoted - set(NOT_YET) == set(), "neither a test quotes it nor has it a reason in not_yet.py"
    assert (quoted | set(NOT_YET)) - set(SENTENCES) == set(), "a name that no sentence of the two pages has"
    assert quoted & set(NOT_YET) == set(), "a sentence that has a test needs no reason"


def test_no_test_knows_a_backend_by_its_name() -> None:
    """
    > One conformance suite, keyed on capabilities and never on an adapter's name, runs on all three.
    """
    named = []
    for test, node in _tests():
        body = node.body[1:] if ast.get_docstring(node) else node.body
        for inner in (inner for statement in body for inner in ast.walk(statement)):
            word = inner.id if isinstance(inner, ast.Name) else inner.value if isinstance(inner, ast.Constant) else ""
            if isinstance(word, str) and _NAMES.search(word):
                named.append(f"{test} says {word!r}")
    assert named == []
