"""The page's own commands, run as they stand there but for the addresses."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.docs.page import Page


def commands(page: Page, title: str) -> list[list[str]]:
    """Return the `oms-bridge` commands of a section, in order."""
    found = re.findall(r"^(oms-bridge .*)$", page.section(title), re.MULTILINE)
    return [shlex.split(line, comments=True) for line in found]


async def run(command: list[str], directory: Path, replaced: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run one in a folder; `replaced`: what the page says, and what it is here."""
    words = [Path(sys.executable).with_name("oms-bridge").as_posix(), *command[1:]]
    for old, new in replaced.items():
        words = [word.replace(old, new) for word in words]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OMS_")}
    return await asyncio.to_thread(
        subprocess.run, words, cwd=directory, env=environ, capture_output=True, text=True, check=False
    )
