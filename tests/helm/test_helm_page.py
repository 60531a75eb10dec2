"""docs/kubernetes.md: its values render, its templates are those of the example, values.yaml explains every value."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bridge.settings import Settings
from tests.helm.charts import CHART, EXAMPLE, LIBRARY, render
from tests.helm.program import KUBERNETES

TEXT = (CHART.parents[1] / "docs" / "kubernetes.md").read_text("utf-8")
BLOCKS = re.findall(r"```yaml\n# (\S+)( of your chart)?\n(.*?)```", TEXT, re.DOTALL)
VALUES = [block for name, yours, block in BLOCKS if name == "values.yaml" and not yours]


def unexplained(node: yaml.Node | None, lines: list[str]) -> Iterator[str]:
    """Yield the lines of values without a comment above them; a comment above a mapping explains all of it."""
    assert isinstance(node, yaml.MappingNode)
    for key, value in node.value:
        line = key.start_mark.line
        if lines[line - 1].strip().startswith("# "):
            continue
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from unexplained(value, lines)
        else:
            yield lines[line]


@pytest.mark.parametrize("chart", [CHART, LIBRARY], ids=lambda chart: chart.name)
def test_every_value_is_explained_where_helm_shows_it(chart: Path) -> None:
    text = (chart / "values.yaml").read_text("utf-8")
    assert f"helm show values helm/{CHART.name}" in TEXT
    assert list(unexplained(yaml.compose(text), text.splitlines())) == []


def test_every_block_says_what_it_is() -> None:
    assert len(BLOCKS) == TEXT.count("```yaml")
    assert len(VALUES) >= 5


@pytest.mark.usefixtures("helm")
def test_the_values_render(subtests: pytest.Subtests) -> None:
    first, *others = map(yaml.safe_load, VALUES)
    assert render(first)
    for values in others:  # added to the first, as the page says
        with subtests.test(values=values):
            policy = first["networkPolicy"] | values.get("networkPolicy", {})
            assert render(first | values | {"networkPolicy": policy})


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
