"""What the site has beside the files of `docs/`: mkdocs calls `on_…` while it builds.

Files of the repository's root are pages too: they stay where everybody looks for them, and links to them hold in both
places. Diagrams are pictures drawn beforehand (`docs/draw_diagrams.py`): what draws them in a browser would have to be
loaded from elsewhere.
"""
# ruff: noqa: INP001 - mkdocs loads it by its path

import hashlib
import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PAGES: Final = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
NAME: Final = re.compile(r"<code>((?:[A-Z]{3,6} )?[^\s<]+)</code>")
"""Code without a space, or a method and its path, in a sentence or a table."""
SHORT: Final = 18
"""Characters that fit into a column of a table: a browser shall not break such a name."""
CELL: Final = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
DRAWING: Final = re.compile(r'<div class="language-text highlight">(?=(?:(?!</div>).)*(?:→|--&gt;))', re.DOTALL)
"""A block of text that is a drawing."""
DIAGRAM: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the root, with their links as seen from `docs/`."""
    root = Path(config.config_file_path).parent
    for name, page in PAGES.items():
        text = (root / name).read_text("utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs passes them by these names
    """Make links to those files links to their pages, and diagrams pictures."""
    for name, there in PAGES.items():
        markdown = markdown.replace(f"](../{name}", f"]({there}")
    here = posixpath.dirname(page.file.src_uri)
    return DIAGRAM.sub(lambda found: f"![diagram]({posixpath.relpath(drawing(found[1]), here)})", markdown)


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - the same
    """Mark names and drawings, which docs/site.css keeps in one piece; a pipe in a table loses its backslash."""
    html = CELL.sub(lambda cell: cell[0].replace("\\|", "|"), html)
    return DRAWING.sub('<div class="diagram highlight">', NAME.sub(_name, html))


def _name(found: re.Match[str]) -> str:
    if len(found[1]) <= SHORT or ("-" in found[1] and len(found[1]) <= 2 * SHORT):
        return f'<code class="name">{found[1]}</code>'
    parts = re.sub(r"(?<=[^&])([_./=]+|&amp;)(?=[^_./=])", r"\1<wbr>", found[1])
    return f'<code class="long">{parts}</code>'


def drawing(source: str) -> str:
    """Return where the picture of a diagram is, seen from `docs/`: another source is another picture."""
    return f"diagrams/{hashlib.sha256(source.encode()).hexdigest()[:12]}.svg"
