"""A page of `docs/`, taken apart: its sections and their tables, and what the table of a backend's options says."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

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


def check_defaults(
    options: Mapping[str, list[str]],
    defaults: Mapping[str, object],
    words: Mapping[str, object],
    subtests: pytest.Subtests,
) -> None:
    """Compare the second cell of each option's row with its default. `words`: what stands for a value there."""
    assert options
    for name, row in options.items():
        with subtests.test(name=name):
            default = defaults[name]
            shown = str(default).lower() if isinstance(default, bool) else default
            assert words.get(row[1], row[1]) in [shown, str(shown)]


def check_bounds(
    options: Mapping[str, list[str]], url: str, parse: Callable[[str], object], subtests: pytest.Subtests
) -> None:
    """Try the numbers at the bounds that an option's row shows, and those beyond them, in the `url` of the backend."""
    found = [item for item in options.items() if re.match(r"\d+ to \d+", item[1][2])]
    assert len(found) > 2
    for name, row in found:
        with subtests.test(name=name, row=row):
            least, most = map(int, re.findall(r"\d+", row[2]))
            for number in (least, most):
                assert getattr(parse(f"{url}?{name}={number}"), name) == number
            for number in (least - 1, most + 1):
                with pytest.raises(ValueError, match=f"from {least} to {most}"):
                    parse(f"{url}?{name}={number}")
