"""Draw the diagrams of the documentation: `python docs/draw_diagrams.py`, with npm and Chromium at hand.

GitHub draws them itself; the site shows these pictures.
"""
# ruff: noqa: INP001 - a standalone program, to be run after a diagram was changed

import base64
import json
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from site_hooks import DIAGRAM, drawing

_DOCS: Final = Path(__file__).parent
_MERMAID: Final = "mermaid@11.17.2"
_PAGE: Final = """<script src="package/dist/mermaid.min.js"></script><body><script>
mermaid.initialize({startOnLoad: false, theme: "neutral", htmlLabels: false, flowchart: {htmlLabels: false}});
mermaid.render("drawn", SOURCE).then(({svg}) => {
  document.body.textContent = "drawn:" + btoa(unescape(encodeURIComponent(svg))) + ":";
});
</script>"""


def main() -> None:
    """Draw those that have no picture, and remove pictures of which there is no diagram any more."""
    sources = [source for page in _DOCS.rglob("*.md") for source in DIAGRAM.findall(page.read_text("utf-8"))]
    wanted = {_DOCS / drawing(source): source for source in sources}
    for old in {*_DOCS.glob("diagrams/*.svg")} - set(wanted):
        old.unlink()
    missing = {path: source for path, source in wanted.items() if not path.exists()}
    if missing:
        with tempfile.TemporaryDirectory() as folder:
            _fetch(Path(folder))
            for path, source in missing.items():
                path.parent.mkdir(exist_ok=True)
                path.write_text(_drawn(source, Path(folder)), "utf-8")


def _fetch(folder: Path) -> None:
    subprocess.run(["npm", "pack", "--silent", _MERMAID], cwd=folder, check=True, stdout=subprocess.DEVNULL)  # noqa: S603, S607
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extract("package/dist/mermaid.min.js", folder, filter="data")


def _drawn(source: str, folder: Path) -> str:
    page = folder / "page.html"
    page.write_text(_PAGE.replace("SOURCE", json.dumps(source)), "utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--virtual-time-budget=20000", "--dump-dom", page.as_uri()]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 - our own page
    (found,) = re.findall(r"drawn:([\w+/=]+):", shown)
    return base64.b64decode(found).decode().replace('style="', 'style="background: white; ', 1) + "\n"


if __name__ == "__main__":
    main()
