"""helm: the one on the PATH, else built by Go into the cache, once per machine."""

import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.brokers.cache import installed

VERSION: Final = "v3.22.0"
PACKAGE: Final = "helm.sh/helm/v3/cmd/helm"
KUBERNETES: Final = ("1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37")
"""What the charts are for. The first is where native sidecars and `preStop: sleep` are there without a feature gate."""


@functools.cache
def helm() -> str:
    """Return the program; Missing if there is none and none can be built."""
    return shutil.which("helm") or str(built())


def built() -> Path:
    """Return the one in the cache, built if need be; Missing if it cannot be."""
    return installed("helm", PACKAGE, VERSION)


def helm_4() -> Path:
    """Return Helm 4 in the cache, built if need be; Missing if it cannot be."""
    return installed("helm", "helm.sh/helm/v4/cmd/helm", "v4.3.1")


def run(*arguments: str | Path, given: str = "") -> "subprocess.CompletedProcess[str]":
    """Run helm without this user's configuration, `given` as its input, and return what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HELM_")}
    return subprocess.run(
        [helm(), *arguments],
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
