"""What may be said in values: no unknown name, nothing contradictory, no secret."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.charts import CASES, CHART, LIBRARY, Refused, case, render, rendered
from tests.helm.settings_schema import SCHEMAS, settings_schema

SECRET = "s3cr3t-s3cr3t"  # noqa: S105
BASE: dict[str, Any] = yaml.safe_load(CASES["kafka"].read_text())


def merged(over: dict[str, Any], base: dict[str, Any] = BASE) -> dict[str, Any]:
    result = copy.deepcopy(base)
    for name, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(name), dict)
        result[name] = merged(value, result[name]) if both else value
    return result


def sections(values: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every mapping of the chart's own."""
    yield above
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from sections(value, (*above, name))


DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
FREE = {("gateway", "resources", "requests"), ("gateway", "resources", "limits")}
FREE |= {("mirror", "resources", "requests"), ("mirror", "resources", "limits"), ("monitoring", "dashboard", "labels")}
"""Where names are the user's, or Kubernetes'."""


@pytest.mark.parametrize("path", [p for p in sections(DEFAULTS) if p not in FREE], ids=".".join)
def test_an_unknown_name_is_refused_in_every_section(path: tuple[str, ...], tmp_path: Path) -> None:
    over: dict[str, Any] = {"unheardOf": 1}
    for name in reversed(path):
        over = {name: over}
    with pytest.raises(Refused, match="'unheardOf' not allowed"):
        rendered(merged(over), tmp_path)


@pytest.mark.parametrize("section", ["limits", "delivery", "http", "callbacks", "log", "timeouts", "binding"])
def test_an_unknown_setting_is_refused(section: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="'unheardOf' not allowed"):
        rendered(merged({"settings": {section: {"unheardOf": 1}}}), tmp_path)


@pytest.mark.parametrize("values", ["{bridge: {unheardOf: 1}}", "{bridge: {settings: {limits: {bodi: 1}}}}"])
def test_an_unknown_name_is_refused_in_the_sidecar(example: Path, tmp_path: Path, values: str) -> None:
    (tmp_path / "values.yaml").write_text(values)
    with pytest.raises(Refused, match="not allowed"):
        render(example, "--values", tmp_path / "values.yaml")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "backend": ({"backend": {"url": ""}}, "name the Secret"),
    "two backends": ({"backend": {"existingSecret": "x"}}, "both set"),
    "no brokers": ({"networkPolicy": {"brokers": []}}, "name the brokers"),
    "several memories": ({"backend": {"url": "memory://"}}, "gateway.replicas to 1"),
    "growing memories": (
        {"backend": {"url": "memory://"}, "gateway": {"replicas": 1, "autoscaling": {"enabled": True}}},
        "gateway.replicas to 1",
    ),
    "mirrored memory": (
        {"backend": {"url": "memory://"}, "gateway": {"replicas": 1}, "mirror": {"enabled": True}},
        "mirror.enabled needs a broker",
    ),
    "unsigned callbacks": ({"settings": {"callbacks": {"targets": ["https://x.example"]}}}, "callbacks.existingSecret"),
    "clients' authority without TLS": ({"tls": {"clientCa": True}}, "tls.existingSecret"),
    "autoscaling upside down": ({"gateway": {"autoscaling": {"enabled": True, "minReplicas": 9}}}, "above maxReplicas"),
    "a size that is none": ({"settings": {"limits": {"body": "1 megabyte"}}}, "settings/limits/body"),
    "a number out of its range": ({"settings": {"limits": {"batch": 0}}}, "settings/limits/batch"),
    "a server that is none": ({"settings": {"server": "uvicorn"}}, "settings/server"),
    "a mode that is none": ({"mirror": {"mode": "twice"}}, "mirror/mode"),
    "a schedule that is none": ({"mirror": {"prune": {"schedule": "daily"}}}, "mirror/prune/schedule"),
    "less than the batch under way needs": ({"mirror": {"terminationGracePeriodSeconds": 30}}, "terminationGrace"),
    "a volume that jobs cannot mount": ({"mirror": {"persistence": {"accessMode": "ReadWriteOncePod"}}}, "accessMode"),
    "a mount from nowhere": ({"mounts": [{"name": "x", "mountPath": "/x"}]}, "mounts/0"),
    "a mount in the place of ours": ({"mounts": [{"name": "tmp", "mountPath": "/x", "secret": "x"}]}, "mounts/0/name"),
    "a broker without a port": ({"networkPolicy": {"brokers": [{"to": [{"podSelector": {}}]}]}}, "brokers/0"),
    "brokers everywhere": ({"networkPolicy": {"brokers": [{"to": [], "ports": [1]}]}}, "brokers/0/to"),
    "a port below 1024": ({"ports": {"data": 80}}, "ports/data"),
    "ports as settings": ({"settings": {"listen": "0.0.0.0:1"}}, "'listen' not allowed"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_with_its_reason(name: str, tmp_path: Path) -> None:
    over, why = REFUSED[name]
    with pytest.raises(Refused, match=re.escape(why)):
        rendered(merged(over), tmp_path)


SECRETS: dict[str, dict[str, Any]] = {
    "in the URL": {"backend": {"url": f"amqp://user:{SECRET}@rabbit/shop"}},
    "in the URL, after a host": {"backend": {"url": f"kafka://a:9092,user:{SECRET}@b:9092"}},
    "in an option": {"backend": {"url": f"kafka://kafka:9093?user=bridge&password={SECRET}"}},
    "in a later option": {"backend": {"url": f"kafka://kafka:9093?tls=true&password={SECRET}"}},
    "as a setting": {"settings": {"backend": f"amqp://user:{SECRET}@rabbit/shop"}},
    "to sign with": {"settings": {"callbacks": {"secrets": [SECRET]}}},
    "in a variable": {"mirror": {"env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": SECRET}]}},
    "in the mirror's path": {"mirror": {"out": f"s3a://key:{SECRET}@bucket/mirror"}},
    "in the mirror's options": {"mirror": {"args": [f"--backend=amqp://user:{SECRET}@rabbit"]}},
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_refused_and_not_repeated(name: str, tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        rendered(merged(SECRETS[name]), tmp_path)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", CASES)
def test_no_manifest_is_or_holds_a_secret(name: str) -> None:
    for manifest in case(name):
        assert manifest["kind"] != "Secret"
        text = json.dumps(manifest)
        assert not re.search(r"://[^/\"]*:[^@/\"]*@|whsec_|password\"?[=:]", text)


@pytest.mark.parametrize("path", SCHEMAS, ids=["chart", "library"])
def test_the_schema_knows_the_settings_of_the_bridge(path: Path) -> None:
    schema = json.loads(path.read_text())
    assert schema["$defs"]["settings"] == settings_schema(), "run python -m tests.helm.settings_schema"


def test_chart_and_library_mean_the_same() -> None:
    chart, library = (json.loads(path.read_text()) for path in SCHEMAS)
    assert all(chart["$defs"][name] == its for name, its in library["$defs"].items())
    shared = set(chart["properties"]) & set(library["properties"]) - {"global"}
    assert all(chart["properties"][name] == library["properties"][name] for name in shared)
    ours = yaml.safe_load((LIBRARY / "values.yaml").read_text())
    assert {n: v for n, v in DEFAULTS.items() if n in ours and n != "image"} == {
        n: v for n, v in ours.items() if n in DEFAULTS and n != "image"
    }


@pytest.mark.parametrize("chart", [CHART, LIBRARY], ids=["chart", "library"])
def test_every_value_has_a_line_that_says_what_it_is(chart: Path) -> None:
    lines = (chart / "values.yaml").read_text().splitlines()
    leaves = [
        i
        for i, line in enumerate(lines)
        if re.match(r"\s*\w+: \S", line) and not re.match(r"\s+(requests|limits):", line)
    ]
    assert len(leaves) > 10
    bare = [lines[i] for i in leaves if not lines[i - 1].lstrip().startswith("#")]
    allowed = {
        "  server: granian",
        "      podSelector: {matchLabels: {k8s-app: kube-dns}}",
    }  # of these the line is above
    assert [line for line in bare if line not in allowed] == []
