"""With identities, what the chart runs has tokens; without, an install says so."""

import shutil
from pathlib import Path

import pytest

from tests.helm.charts import CASES, CHART, case, one, render

pytestmark = pytest.mark.usefixtures("helm")


def notes(name: str, directory: Path) -> str:
    """Return what `helm install` prints: rendered as a manifest, as only an install, with its cluster, prints it."""
    chart = directory / name
    shutil.copytree(CHART, chart)
    shutil.copy(chart / "templates" / "NOTES.txt", chart / "NOTES.txt")
    template = 'kind: Notes\nmetadata: {name: notes}\ntext: |\n{{ tpl (.Files.Get "NOTES.txt") . | indent 2 }}\n'
    (chart / "templates" / "notes.yaml").write_text(template)
    text: str = one(render(CASES[name].read_text(), chart=chart), "Notes", "notes")["text"]
    return text


def test_prometheus_and_helm_test_have_tokens() -> None:
    (endpoint,) = one(case("everything"), "ServiceMonitor", "gateway-metrics")["spec"]["endpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "scraper", "key": "token"}}
    (mirror,) = one(case("everything"), "ServiceMonitor", "mirror-metrics")["spec"]["endpoints"]
    assert "authorization" not in mirror
    pod = one(case("everything"), "Pod", "test")["spec"]
    (container,) = pod["containers"]
    assert container["args"][0].count('"--token-file=/run/secrets/oms-bridge/token/token"') == 2
    assert {"name": "oms-bridge-token", "mountPath": "/run/secrets/oms-bridge/token", "readOnly": True} in container[
        "volumeMounts"
    ]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "oms-bridge-token")
    assert volume["secret"] == {"secretName": "tester", "items": [{"key": "token", "path": "token"}]}
    assert "token" not in str(one(case("kafka"), "Pod", "test"))


def test_an_install_asks_for_the_decision(tmp_path: Path) -> None:
    assert "No identities (settings.auth): anyone who can reach the data port" in notes("kafka", tmp_path)
    assert "No identities" not in notes("everything", tmp_path)
