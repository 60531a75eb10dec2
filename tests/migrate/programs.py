"""The programs of a page: each block that begins with a file's name, written as that file; Go's are compiled."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from tests.docs.page import Page

_BLOCK: Final = re.compile(r"```(?:python|bash|go)\n((?:#|//) (\S+\.(?:py|sh|go))\b.*\n(?:.*\n)*?)```")
_NO_GO: Final = (
    "No Go: the page's Go program has to be compiled. Install Go 1.24 or newer (go.dev, or apt-get install golang)"
)


def blocks(page: Page) -> dict[str, str]:
    """Return the text of each program by its file's name."""
    return {name: text for text, name in _BLOCK.findall(page.text)}


class Programs:
    """Those of one page in a folder of their own."""

    def __init__(self, page: Page, directory: Path, others: Mapping[str, str] = MappingProxyType({})) -> None:
        """Write them; `others`: programs that the page takes from elsewhere, by their files' names."""
        directory.mkdir(parents=True)
        self._directory = directory
        for name, text in {**others, **blocks(page)}.items():
            (directory / name).write_text(text, "utf-8")

    def compile(self) -> None:
        """Have Go compile what is Go's; that fails where it is not gofmt's own form either."""
        go = shutil.which("go")
        if go is None:
            pytest.skip(_NO_GO)
        for source in self._directory.glob("*.go"):
            subprocess.run([go, "build", "-o", source.with_suffix(""), source.name], cwd=self._directory, check=True)
            unformatted = subprocess.run(
                [Path(go).with_name("gofmt"), "-l", source.name], cwd=self._directory, check=True, capture_output=True
            )
            assert not unformatted.stdout, "gofmt would change the program"

    def command(self, name: str, *arguments: str) -> list[str]:
        """Return how to start one: `http_producer.py`, `curl_producer.sh`, `orders` for a compiled one."""
        file = self._directory / name
        assert file.exists(), f"the page has no program {name}"
        if file.suffix == ".py":
            return [sys.executable, str(file), *arguments]
        return ["bash", str(file), *arguments] if file.suffix == ".sh" else [str(file), *arguments]
