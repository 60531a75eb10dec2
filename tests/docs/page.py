"""A page of `docs/`, taken apart: its sections and their tables."""

import re
from pathlib import Path
from typing import Final

_DOCS: Final = Path(__file__).parents[2] / "docs"


class Page:
    """One page."""

    def __init__(self, name: str) -> None:
        self.text = (_DOCS / name).read_text("utf-8")

    def section(self, title: str) -> str:
        """Return what stands between a heading and the next one."""
        _, _, rest = self.text.partition(f"# {title}\n")
        return re.split(r"^##+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]

    def table(self, title: str) -> list[list[str]]:
        """Return the cells of the rows of the tables in a section, the two of the first one's head excepted."""
        rows = [line[2:-2].split(" | ") for line in self.section(title).splitlines() if line.startswith("| ")]
        return rows[1:]
