"""Every command that a page shows in a block of `sh` or `console`: what it prints there, what it says to need."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    "README.md",
    "CONTRIBUTING.md",
    *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/**/*.md"))),
)

_BLOCK: Final = re.compile(
    r"(?:^(?P<indent> *)<!-- needs a cluster: (?P<needs>[^>]*\S) -->\n)?"
    r"^ *```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
_SHELLS: Final = ("sh", "console", "bash", "shell")
_PROGRAM: Final = re.compile(r"# [\w-]+\.sh\b")
"""How a block begins that is a file: one command, whatever it does."""
_ASSIGNS: Final = re.compile(r"[A-Za-z_]+=\S*|\w+=\$\(.*\)")


class Command(NamedTuple):
    """One command; several lines where a line ends in a backslash, or where a variable is set for the next."""

    page: str
    line: int
    text: str
    printed: str | None
    """What a `console` block shows below it; None: it shows nothing."""
    needs: str | None
    """The cluster without which it cannot run."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def commands(page: str, text: str | None = None) -> Iterator[Command]:
    """Yield the commands of a page in their order; `text` is the page's own unless given."""
    text = (ROOT / page).read_text("utf-8") if text is None else text
    for block in _BLOCK.finditer(text):
        if block["language"] not in _SHELLS:
            continue
        first = text.count("\n", 0, block.start("text")) + 1
        lines = _outdented(block["text"]).splitlines()
        parts = _console(lines) if block["language"] == "console" else _script(lines)
        for at, command, printed in parts:
            yield Command(page, first + at, command, printed, block["needs"])


def _outdented(text: str) -> str:
    """A block inside a list is indented as its list is."""
    indent = len(text) - len(text.lstrip(" "))
    return re.sub(rf"^ {{0,{indent}}}", "", text, flags=re.MULTILINE)


def _console(lines: list[str]) -> Iterator[tuple[int, str, str | None]]:
    starts = [at for at, line in enumerate(lines) if line.startswith("$ ")]
    for at, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        last = next(n for n in range(at, end) if not lines[n].endswith("\\"))
        yield at, "\n".join(lines[at : last + 1])[2:], "\n".join(lines[last + 1 : end]) or None


def _script(lines: list[str]) -> Iterator[tuple[int, str, str | None]]:
    if lines and _PROGRAM.match(lines[0]):
        yield 0, "\n".join(lines), None
        return
    gathered: list[str] = []
    for at, line in enumerate(lines):
        if not gathered and (not line.strip() or line.startswith("#")):
            continue
        gathered.append(line)
        last = at + 1 == len(lines)
        if last or not (line.endswith("\\") or _ASSIGNS.fullmatch(line)):
            yield at + 1 - len(gathered), "\n".join(gathered), None
            gathered = []
