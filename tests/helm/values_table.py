"""The table of values in docs/kubernetes.md, made from values.yaml and its comments.

`python -m tests.helm.values_table` writes it into the page; a test fails until that was done.
"""

import json
from collections.abc import Iterator
from typing import Final

import yaml

from tests.helm.charts import CHART

PAGE: Final = CHART.parents[1] / "docs" / "kubernetes.md"
_HEAD: Final = "| value | default | meaning |\n|---|---|---|\n"


def table() -> str:
    """Return it, a row for each value that has a comment above it."""
    text = (CHART / "values.yaml").read_text("utf-8")
    return _HEAD + "".join(_rows(yaml.compose(text), text.splitlines(), ""))


def _rows(node: yaml.Node | None, lines: list[str], above: str) -> Iterator[str]:
    assert isinstance(node, yaml.MappingNode)
    for key, value in node.value:
        name = above + key.value
        said = lines[key.start_mark.line - 1].strip()
        if (
            said.startswith("# ")
            and said != "# Every value, with its default. docs/kubernetes.md tells what to set for what."
        ):
            default = json.dumps(yaml.safe_load(yaml.serialize(value)), ensure_ascii=False)
            shown = "" if default in {'""', "[]", "{}"} else f"`{default.strip(chr(34))}`"
            meaning, colon, form = said.removeprefix("# ").partition(": - ")
            yield f"| `{name}` | {shown} | {meaning}{f': `- {form}`' if colon else ''} |\n"
        if isinstance(value, yaml.MappingNode) and not said.startswith("# "):
            yield from _rows(value, lines, f"{name}.")


def with_table(page: str) -> str:
    """Return the page with the table as it should be."""
    before, heading, _ = page.partition("\n## Values\n")
    said = page.partition(heading)[2].strip().splitlines()[0]
    return f"{before}{heading}\n{said}\n\n{table()}"


def main() -> None:
    """Write it into the page."""
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
