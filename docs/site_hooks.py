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


def drawing(source: str) -> str:
    """Return where the picture of a diagram is, seen from `docs/`: another source is another picture."""
    return f"diagrams/{hashlib.sha256(source.encode()).hexdigest()[:12]}.svg"
