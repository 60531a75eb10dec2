"""Find the words of `table.toml` in documents, docstrings, comments, messages and identifiers: part of `make lint`."""

import ast
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
TABLE: Final = tomllib.loads(Path(__file__).with_name("table.toml").read_text("utf-8"))
PHRASES: Final = [(re.compile(rf"\b({p})\b".replace(" ", r"\s+"), re.IGNORECASE), p) for p in TABLE["phrases"]]
PROSE: Final = (".md", ".yaml", ".yml", ".tpl", ".txt", ".sh", "pyproject.toml", "Makefile", "Dockerfile", ".java")
"""How the names of files end that are read as prose. Python is read by its parts."""
MESSAGE: Final = 3
"""Words that a string must have to be read as a message."""
CODE: Final = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)


class Found(NamedTuple):
    """A word that the table forbids, and what to write instead."""

    line: int
    word: str
    instead: str


def strings(nodes: Sequence[ast.AST], *, messages: bool) -> Iterator[tuple[int, str]]:
    """Yield docstrings (every string that is a statement) and, on request, the strings that may be messages."""
    statements = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)) if id(node) in statements:
                yield (node.lineno, text)
            case ast.Constant(value=str(text)) if messages and len(text.split()) >= MESSAGE:
                yield (node.lineno, text)


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments as one text: a sentence may span lines."""
    lines = [""] * len(source.splitlines())
    for token in tokenize.generate_tokens(iter(source.splitlines(keepends=True)).__next__):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = token.string.lstrip("# ")
    yield (1, "\n".join(line or "." for line in lines))


def names(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield each name that is defined: of a class, function, parameter, variable or attribute."""
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield (node.lineno, name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield (node.lineno, name)


def findings(path: str, source: str) -> Iterator[Found]:
    """Yield what the table forbids in a file."""
    test = path.startswith(("tests/", "benchmarks/")) and not path.startswith("tests/conformance/")
    allowed = {word for place, words in TABLE["allowed"].items() if path.startswith(place) for word in words}
    if "*" in allowed:
        return
    texts = [(1, re.sub(r"^( *)(#|//) ", r"\1", source, flags=re.MULTILINE))]
    if path.endswith(".py"):
        nodes = list(ast.walk(ast.parse(source)))
        texts = [*strings(nodes, messages=not test), *comments(source)]
        for line, name in [] if test else names(nodes):
            for part in map(str.lower, re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)):
                if part in TABLE["names"] and part not in allowed:
                    yield Found(line, f"`{part}` in the name `{name}`", TABLE["names"][part])
    for line, text in texts:
        plain = CODE.sub(lambda code: re.sub(r"[^\n]", "`", code[0]), text)
        for pattern, phrase in PHRASES:
            for match in pattern.finditer(plain):
                if (word := " ".join(match[0].lower().split())) not in allowed:
                    yield Found(line + plain.count("\n", 0, match.start()), f"“{word}”", TABLE["phrases"][phrase])


def main() -> None:
    """Print every place; exit 1 when there is one."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [path for path in listed.splitlines() if path.endswith((".py", *PROSE)) and (ROOT / path).exists()]
    found = [(path, *place) for path in paths for place in findings(path, (ROOT / path).read_text("utf-8"))]
    shown = [f"{path}:{line}: {word}: write {instead}" for path, line, word, instead in found]
    sys.exit("\n".join([*shown, f"{len(found)} words to replace: tests/words/table.toml"]) if found else 0)


if __name__ == "__main__":
    main()
