"""What mutmut wrote: each mutant's name, the line it changes, and whether it is worth a run."""

import ast
import difflib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

LOGGING: Final = frozenset(("debug", "info", "warning", "error", "exception", "critical", "log"))

SQL: Final = re.compile(r"(select|insert|delete|update|create|pragma) ", re.IGNORECASE)
CODING: Final = frozenset(("encode", "decode"))


class Mutant(NamedTuple):
    """One changed place."""

    name: str
    """Its name in mutmut."""
    file: str
    line: int
    was: str
    """The changed lines of the original, without their indent."""
    becomes: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}\n    - {self.was}\n    + {self.becomes}"


def mutants_of(file: str, root: Path) -> Iterator[Mutant]:
    """Yield the mutants of one module that differ from it in more than the sentence of an error or of a log line."""
    mutated = root / "mutants" / file
    meta = mutated.with_name(mutated.name + ".meta")
    if not meta.exists():
        return
    text = mutated.read_text("utf-8")
    lines = text.splitlines()
    found = {
        node.name: node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "__mutmut_" in node.name
    }
    places = _places((root / file).read_text("utf-8"))
    for name in json.loads(meta.read_text("utf-8"))["exit_code_by_key"]:
        short = name.rpartition(".")[2]
        function = short.rpartition("__mutmut_")[0]
        original, changed = found[f"{function}__mutmut_orig"], found[short]
        if _meaning(original) == _meaning(changed):
            continue
        offset, was, becomes = _difference(_lines(lines, original), _lines(lines, changed))
        yield Mutant(name, file, places[function] + offset, was, becomes)


def _places(source: str) -> dict[str, int]:
    """Return the line of each function's `def`, by the name that mutmut gives it."""
    found: dict[str, int] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[f"x_{node.name}"] = node.lineno
        elif isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                    found[f"xǁ{node.name}ǁ{member.name}"] = member.lineno
    return found


def _lines(lines: list[str], node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    found = lines[node.lineno - 1 : node.end_lineno]
    return [line.replace(node.name, "", 1) if place == 0 else line for place, line in enumerate(found)]


def _difference(was: list[str], becomes: list[str]) -> tuple[int, str, str]:
    """Return the place of the first difference, and the lines of either side."""
    changes = [
        change
        for change in difflib.SequenceMatcher(None, was, becomes, autojunk=False).get_opcodes()
        if change[0] != "equal"
    ]
    first, last = changes[0], changes[-1]
    gone, new = was[first[1] : last[2]], becomes[first[3] : last[4]]
    return first[1], " ".join(map(str.strip, gone)), " ".join(map(str.strip, new))


def _meaning(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Write a function without its name and without the sentences of its errors and log lines."""
    copy = ast.parse(ast.unparse(function)).body[0]
    assert isinstance(copy, ast.FunctionDef | ast.AsyncFunctionDef)
    copy.name = ""
    return ast.dump(_Silent().visit(copy))


class _Silent(ast.NodeTransformer):
    """Takes out what no test can or need detect.

    The sentence of `Error("sentence", …)`, everything in `_log.warning(…)`, the case of a codec's name in
    `decode("ascii")` and of an SQL statement, and `strict=` of `zip`, which asserts what the code around it makes sure
    of.
    """

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Visit a text or a number."""
        return _lower(node) if isinstance(node.value, str) and SQL.match(node.value) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Visit a call."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in CODING:
            return ast.Call(node.func, [*map(_lower, node.args[:1]), *node.args[1:]], node.keywords)
        if isinstance(node.func, ast.Name) and node.func.id == "zip":
            return ast.Call(node.func, node.args, [])
        if isinstance(node.func, ast.Attribute) and node.func.attr in LOGGING and "log" in ast.unparse(node.func.value):
            return ast.Call(node.func, [], [])
        if isinstance(node.func, ast.Name) and _is_error(node.func.id):
            return ast.Call(node.func, node.args[1:], node.keywords)
        return node


def _lower(node: ast.expr) -> ast.expr:
    return ast.Constant(node.value.lower()) if isinstance(node, ast.Constant) and isinstance(node.value, str) else node


def _is_error(name: str) -> bool:
    import bridge.errors as ours  # noqa: PLC0415

    known = getattr(ours, name, None) or getattr(__import__("builtins"), name, None)
    return isinstance(known, type) and issubclass(known, BaseException)
