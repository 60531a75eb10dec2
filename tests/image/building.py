"""Builds images from the tree, with the settings by which this machine reaches its registries."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.image.docker import Docker

ROOT: Final = Path(__file__).parents[2]
_PIP: Final = {"index-url", "extra-index-url", "trusted-host", "proxy"}
_PROXIES: Final = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_MAVEN: Final = Path.home() / ".m2" / "settings.xml"
_PYTHON: Final = """ARG BASE
FROM ${BASE}
RUN apt-get update && apt-get install --yes --no-install-recommends python3 python3-venv
"""


def build(docker: Docker, folder: Path, tag: str, *arguments: str) -> None:
    """Build from `folder`, which has a Dockerfile; AssertionError with what was said if that fails."""
    docker(*command(folder, tag), *arguments)


def command(folder: Path, tag: str) -> list[str]:
    """Return the arguments of docker that build. In the host's network: the tests' daemon has no other."""
    proxies = [f"--build-arg={name}" for name in _PROXIES if name in os.environ]
    return ["build", "--progress=plain", "--network=host", *proxies, f"--tag={tag}", str(folder)]


def secrets(scratch: Path) -> list[str]:
    """Return options with the settings of this machine's pip and Maven. `scratch`: for their files."""
    file = scratch / "pip.conf"
    lines = ["[global]", "cert = /etc/ssl/certs/ca-certificates.crt", "timeout = 180"]
    pip = [sys.executable, "-m", "pip", "config", "list"]
    for line in subprocess.run(pip, capture_output=True, text=True, check=True).stdout.splitlines():
        name, _, value = line.partition("=")
        if name.rpartition(".")[2] in _PIP:
            lines.append(f"{name.rpartition('.')[2]} = {value.strip(chr(39))}")
    file.write_text("\n".join([*lines, ""]), "utf-8")
    maven = [f"--secret=id=maven,src={_MAVEN}"] if _MAVEN.exists() else []
    return [f"--secret=id=pip,src={file}", *maven]


def with_python(docker: Docker, scratch: Path, base: str, tag: str) -> None:
    """Build a base image that has Python already."""
    folder = scratch / "with-python"
    folder.mkdir()
    (folder / "Dockerfile").write_text(_PYTHON, "utf-8")
    build(docker, folder, tag, f"--build-arg=BASE={base}")
