"""helm, and the example chart. Without helm, the tests that need it fail in CI and are skipped elsewhere."""

import os
from pathlib import Path

import pytest

from tests.brokers.cache import Missing
from tests.helm import charts, program


@pytest.fixture(scope="session")
def helm() -> None:
    """Make sure that helm is there; a module of tests that runs it says `usefixtures("helm")`."""
    try:
        program.helm()
    except Missing as missing:
        advice = f"{missing}. Install helm (https://helm.sh/docs/intro/install), or Go (https://go.dev/dl) to build it"
        if os.environ.get("CI") == "true":
            pytest.fail(advice)
        pytest.skip(advice)


@pytest.fixture(scope="session")
def example(helm: None, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001 - it must be there
    """The example chart, its dependency beside it."""
    return charts.example(tmp_path_factory.mktemp("example"))
