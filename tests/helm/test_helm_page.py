"""docs/kubernetes.md: its values render, its templates are those of the example, its table is that of values.yaml."""

import re
from pathlib import Path

import pytest
import yaml

from bridge.settings import Settings
from tests.helm.charts import CHART, EXAMPLE, render
from tests.helm.program import KUBERNETES
from tests.helm.values_table import PAGE, with_table

TEXT = PAGE.read_text("utf-8")
BLOCKS = re.findall(r"```yaml\n# (\S+)( of your chart)?\n(.*?)```", TEXT, re.DOTALL)
VALUES = [block for name, yours, block in BLOCKS if name == "values.yaml" and not yours]


def test_the_table_has_every_value() -> None:
    assert with_table(TEXT) == TEXT, "run python -m tests.helm.values_table"


def test_every_block_says_what_it_is() -> None:
    assert len(BLOCKS) == TEXT.count("```yaml")
    assert len(VALUES) >= 5


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_the_values_render(number: int, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(VALUES[number])
    assert render(CHART, "--values", tmp_path / "values.yaml")


def test_the_example_s_values_are_those_of_the_page() -> None:
    (shown,) = (block for name, yours, block in BLOCKS if name == "values.yaml" and yours)
    values = yaml.safe_load((EXAMPLE / "values.yaml").read_text())
    assert yaml.safe_load(shown) == {"bridge": values["bridge"]}


def test_the_example_depends_on_what_the_page_names() -> None:
    (shown,) = (block for name, _, block in BLOCKS if name == "Chart.yaml")
    chart = yaml.safe_load((EXAMPLE / "Chart.yaml").read_text())
    assert yaml.safe_load(shown)["dependencies"] == chart["dependencies"]


def test_the_lines_for_a_chart_of_one_s_own_are_those_of_the_example() -> None:
    (shown,) = (block for name, _, block in BLOCKS if name == "templates/deployment.yaml")
    template = (EXAMPLE / "templates" / "deployment.yaml").read_text()
    lines = [line for line in shown.splitlines() if not line.lstrip().startswith("#")]
    assert all(line in template.splitlines() for line in lines)
    used = set(re.findall(r'include "(oms-bridge[^"]+)"', TEXT))
    library = (CHART / "charts/openmessaging-bridge-lib/templates/_sidecar.tpl").read_text()
    assert used == {f"oms-bridge.sidecar{part}" for part in ("", ".annotations", ".grace", ".volumes", ".config")}
    assert used <= set(re.findall(r'define "([^"]+)"', library))


def test_the_figures_are_those_of_the_chart() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    drain = Settings().drain // 1000
    assert f"`gateway.preStopSeconds` ({defaults['gateway']['preStopSeconds']})" in TEXT
    assert f"`settings.drain` ({drain} s)" in TEXT
    assert f"with 10 s more: {defaults['gateway']['preStopSeconds'] + drain + 10} with the defaults" in TEXT
    assert f"Kubernetes {KUBERNETES[0]} or newer" in TEXT
