"""The page at `/docs`, in a real browser as narrow as a phone and as wide as a desktop."""

import json
import re
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.browser.chromium import CHROMIUM, FLAGS, TIMEOUT
from tests.launch import Bridge

MEASURE = """<!doctype html><meta charset="utf-8"><body><script>
  const frame = document.createElement("iframe");
  frame.style = "border:0;height:600px;width:%dpx";
  frame.srcdoc = %s;
  frame.onload = () => {
    const shown = frame.contentDocument;
    const width = shown.documentElement.clientWidth;
    const wide = [...shown.querySelectorAll("body *")].filter((node) => node.getBoundingClientRect().right > width + 1);
    document.title = JSON.stringify(wide.map((node) => node.textContent.slice(0, 80)));
    frame.remove();
  };
  document.body.append(frame);
</script>"""
"""Shows a page in a frame of some pixels, and writes what is cut at the right edge into its own title, in JSON."""


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_cut_at_the_right_edge(bridge: Bridge, width: int, tmp_path: Path) -> None:
    page = httpx.get(f"{bridge.url}/docs", trust_env=False).text
    (tmp_path / "measure.html").write_text(MEASURE % (width, json.dumps(page).replace("</", "<\\/")), "utf-8")
    assert CHROMIUM is not None
    chromium = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    run = subprocess.run(
        [*chromium, f"file://{tmp_path / 'measure.html'}"], capture_output=True, timeout=TIMEOUT, check=True
    )
    title = re.search(r"<title>(.*?)</title>", run.stdout.decode())
    assert title is not None, run.stdout[-2000:]
    assert json.loads(title[1]) == []
