"""The documentation becomes a site without a warning, with every page in its menu; it loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.docs.commands import ROOT
from tests.docs.page import Page

MENU: Final = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
OF_THE_ROOT: Final = {"changelog.md", "contributing.md", "security.md"}
"""Pages that docs/site_hooks.py makes of files of the repository's root."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"pip install -e '.[test]' brings mkdocs\n{done.stdout}{done.stderr}"
    assert "WARNING" not in done.stderr, done.stderr
    return folder


def pages(menu: object) -> Iterator[str]:
    if isinstance(menu, str):
        yield menu
    elif isinstance(menu, dict):
        yield from pages([*menu.values()])
    else:
        assert isinstance(menu, list), menu
        for entry in menu:
            yield from pages(entry)


def test_every_page_is_in_the_menu_once() -> None:
    there = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(pages(MENU)) == sorted(there | OF_THE_ROOT)


def test_every_page_has_something_to_read(site: Path) -> None:
    for page in pages(MENU):
        path = site / page.removesuffix(".md").removesuffix("index").removesuffix("README") / "index.html"
        (body,) = re.findall(r"<article.*?</article>", path.read_text("utf-8"), re.DOTALL)
        assert len(re.sub(r"<[^>]*>", "", body)) > 200, page


class _Loads(HTMLParser):
    """What a browser loads for a page automatically."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.classes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in {"script", "img", "iframe", "source", "video", "audio", "embed"}:
            self.urls += filter(None, [given.get("src"), given.get("srcset")])
        if tag == "link" and given.get("rel") not in {"next", "prev", "canonical"}:
            self.urls += filter(None, [given.get("href")])
        self.classes |= {*(given.get("class") or "").split()}


def test_every_diagram_has_its_picture_and_no_picture_is_left_over(site: Path) -> None:
    """Where one is missing: python docs/draw_diagrams.py."""
    shown = [
        url for path in site.rglob("*.html") for url in re.findall(r'src="([^"]*diagrams/[^"]*)"', path.read_text())
    ]
    assert sorted(url.rpartition("/")[2] for url in shown) == sorted(path.name for path in site.glob("diagrams/*"))
    assert len(shown) == sum(path.read_text().count("```mermaid\n") for path in (ROOT / "docs").rglob("*.md"))
    for path in site.glob("diagrams/*"):
        assert ET.parse(path).getroot().tag.endswith("}svg")  # noqa: S314 - our own


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    for path in site.rglob("*.html"):
        loads = _Loads()
        loads.feed(path.read_text("utf-8"))
        assert loads.urls
        assert [url for url in loads.urls if re.match(r"(\w+:)?//", url)] == [], path
        assert "mermaid" not in loads.classes, "the theme loads what draws it from elsewhere"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//", sheet.read_text("utf-8")), sheet


def test_figures_that_are_repeated_are_measured_ones() -> None:
    measured = Page("performance.md").text
    rates = [cell for row in Page("operations.md").table("Sizing")[:3] for cell in row[1:]]
    figures = re.findall(r"\d[\d,.]*\d", " ".join(rates))
    assert len(figures) == 15
    assert [figure for figure in figures if figure not in measured] == []


def test_cells_show_pipes_without_their_backslash(site: Path) -> None:
    cells = re.findall(r"<td[^>]*>.*?</td>", (site / "rabbitmq/index.html").read_text("utf-8"), re.DOTALL)
    assert any("(log|parts|rest)" in cell for cell in cells)
    assert not any("\\|" in cell for cell in cells)


EMPTY_HEAD: Final = re.compile(r"^ *\|(?:[^|\n]*\|)*[ ]*\|(?:[^|\n]*\|)*\n *\|[-:| ]+\|$", re.MULTILINE)


def test_every_column_has_a_head() -> None:
    paths = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    assert [(path.name, head) for path in paths for head in EMPTY_HEAD.findall(path.read_text("utf-8"))] == []
