"""Without helm these tests fail, wherever they run: they say what to install."""

from pathlib import Path

import pytest

from tests.brokers.cache import Missing
from tests.helm import charts, program


@pytest.fixture(scope="session", autouse=True)
def _helm() -> None:
    try:
        program.helm()
    except Missing as missing:
        pytest.fail(
            f"No helm: {missing}. Install helm (https://helm.sh/docs/intro/install), or Go (go.dev/dl) to build it"
        )


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example chart, its dependency beside it."""
    return charts.example(tmp_path_factory.mktemp("example"))
