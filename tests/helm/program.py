"""helm: the one on the PATH, else built by Go into the cache, once per machine."""

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.brokers.cache import CACHE, Missing, filling

VERSION: Final = "v3.22.0"
MODULE: Final = f"helm.sh/helm/v3/cmd/helm@{VERSION}"
KUBERNETES: Final = ("1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37")
"""What the charts are for. The first is where native sidecars and `preStop: sleep` are there without a feature gate."""

_NONE: Final[Mapping[str, str]] = {}


@functools.cache
def helm() -> str:
    """Return the program; Missing if there is none and none can be built."""
    return shutil.which("helm") or str(built())


def built() -> Path:
    """Return the one in the cache, built if need be; Missing if it cannot be."""
    program = CACHE / "bin" / f"helm-{VERSION}"
    if not program.exists():
        with filling():
            if not program.exists():  # another worker may have built it meanwhile
                _build(program)
    return program


def run(
    *arguments: str | Path, at: Path | None = None, more: Mapping[str, str] = _NONE
) -> "subprocess.CompletedProcess[str]":
    """Run helm, with nothing of this user's configuration, and return what it said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HELM_")}
    return subprocess.run(
        [helm(), *arguments],
        cwd=at,
        env={**environment, **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def _build(program: Path) -> None:
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    if go is None:
        raise Missing("there is neither helm nor Go, which builds it")
    partial = CACHE / "helm.partial"
    shutil.rmtree(partial, ignore_errors=True)
    environment = {**os.environ, "GOBIN": str(partial)}
    made = subprocess.run([go, "install", MODULE], env=environment, capture_output=True, text=True, check=False)
    if made.returncode:
        raise Missing(f"go install {MODULE}: {made.stderr.strip()[-2000:]}")
    program.parent.mkdir(parents=True, exist_ok=True)
    (partial / "helm").rename(program)
