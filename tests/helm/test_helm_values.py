"""What may be said in values: no unknown name, nothing contradictory, no secret."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.charts import CASES, CHART, LIBRARY, Refused, case, one, render, values_of
from tests.helm.settings_schema import SCHEMAS, settings_schema

pytestmark = pytest.mark.usefixtures("helm")

SECRET = "s3cr3t-s3cr3t"  # noqa: S105
BASE = values_of("kafka")


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


SETTINGS = [("settings", name) for name in ("limits", "delivery", "http", "callbacks", "log", "timeouts", "binding")]


def test_an_unknown_name_is_refused_in_every_section() -> None:
    """helm lists all that it refuses, each with its section, so one rendering shows it for all of them."""
    paths = [*(path for path in sections(DEFAULTS) if path not in FREE), *SETTINGS]
    assert len(paths) > 30
    values = BASE
    for path in paths:
        over: dict[str, Any] = {"unheardOf": 1}
        for name in reversed(path):
            over = {name: over}
        values = merged(over, values)
    with pytest.raises(Refused) as refused:
        render(values)
    assert [path for path in paths if not refuses_unknown(str(refused.value), path)] == []


def refuses_unknown(said: str, path: tuple[str, ...]) -> bool:
    return f"- at '{''.join(f'/{name}' for name in path)}': additional properties 'unheardOf' not allowed\n" in said


def test_an_unknown_name_is_refused_in_the_sidecar(example: Path) -> None:
    for path in ("bridge",), ("bridge", "settings", "limits"):
        over: dict[str, Any] = {"unheardOf": 1}
        for name in reversed(path):
            over = {name: over}
        with pytest.raises(Refused) as refused:
            render(over, chart=example)
        assert "additional properties 'unheardOf' not allowed" in str(refused.value), path


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
    "executors of a volume": ({"mirror": {"enabled": True, "executors": 1}}, "needs an object store"),
    "executors of a folder": (
        {"mirror": {"enabled": True, "executors": 1, "out": "file:///srv/mirror"}},
        "needs an object store",
    ),
    "executors of a job": (
        {"mirror": {"enabled": True, "executors": 1, "out": "s3a://lake/mirror", "mode": "once"}},
        "needs mirror.mode run",
    ),
    "two masters": (
        {"mirror": {"enabled": True, "executors": 1, "out": "s3a://lake", "sparkConf": {"spark.master": "local"}}},
        "remove it from mirror.sparkConf",
    ),
    "executors that cannot be asked for": (
        {"mirror": {"enabled": True, "executors": 1, "out": "s3a://lake/mirror"}},
        "networkPolicy.kubernetes is empty",
    ),
    "executors that read memory": (
        {
            "backend": {"url": "memory://"},
            "gateway": {"replicas": 1},
            "mirror": {"enabled": True, "executors": 1, "out": "s3a://lake/mirror"},
        },
        "mirror.enabled needs a broker",
    ),
    "executors without a heap": ({"mirror": {"executor": {"memory": "much"}}}, "executor/memory"),
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
    "clients outside that are refused": (
        {"gateway": {"service": {"type": "NodePort"}}},
        "networkPolicy.clients refuses; name them there",
    ),
    "a variable without a value": ({"mirror": {"env": [{"name": "AWS_REGION"}]}}, "mirror/env/0"),
    "a wait without an end": ({"readiness": {"waitSeconds": -1}}, "readiness/waitSeconds"),
    "a port below 1024": ({"ports": {"data": 80}}, "ports/data"),
    "ports as settings": ({"settings": {"listen": "0.0.0.0:1"}}, "'listen' not allowed"),
}


def test_values_that_cannot_be_are_refused_with_the_reason(subtests: pytest.Subtests) -> None:
    for name, (over, why) in REFUSED.items():
        with subtests.test(name), pytest.raises(Refused, match=re.escape(why)):
            render(merged(over))


SECRETS: dict[str, dict[str, Any]] = {
    "in the URL": {"backend": {"url": f"amqp://user:{SECRET}@rabbit/shop"}},
    "in the URL, after a host": {"backend": {"url": f"kafka://a:9092,user:{SECRET}@b:9092"}},
    "in an option": {"backend": {"url": f"kafka://kafka:9093?user=bridge&password={SECRET}"}},
    "in a later option": {"backend": {"url": f"kafka://kafka:9093?tls=true&password={SECRET}"}},
    "as a setting": {"settings": {"backend": f"amqp://user:{SECRET}@rabbit/shop"}},
    "to sign with": {"settings": {"callbacks": {"secrets": [SECRET]}}},
    "in a variable": {"mirror": {"env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": SECRET}]}},
    "in a variable of lower case": {"mirror": {"env": [{"name": "my_token", "value": SECRET}]}},
    "in a variable's URL": {"mirror": {"env": [{"name": "HTTPS_PROXY", "value": f"http://me:{SECRET}@proxy"}]}},
    "in the mirror's path": {"mirror": {"out": f"s3a://key:{SECRET}@bucket/mirror"}},
    "in a setting of Spark": {"mirror": {"sparkConf": {"spark.hadoop.fs.s3a.secret.key": SECRET}}},
    "in the mirror's options": {"mirror": {"args": [f"--backend=amqp://user:{SECRET}@rabbit"]}},
}


def test_the_mirror_takes_plain_variables() -> None:
    plain = {"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": "http://s3.shop.svc:9000"}
    values = merged({"mirror": {"env": [{"name": n, "value": v} for n, v in plain.items()]}}, values_of("mirror-run"))
    [mirror] = one(render(values), "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert plain.items() <= {each["name"]: each.get("value") for each in mirror["env"]}.items()


def test_a_secret_is_refused_and_not_repeated(subtests: pytest.Subtests) -> None:
    for name, over in SECRETS.items():
        with subtests.test(name):
            with pytest.raises(Refused) as refused:
                render(merged(over))
            assert SECRET not in str(refused.value)


def test_no_manifest_is_or_holds_a_secret(subtests: pytest.Subtests) -> None:
    for name in CASES:
        for manifest in case(name):
            with subtests.test(case=name, kind=manifest["kind"], name=manifest["metadata"]["name"]):
                assert manifest["kind"] != "Secret"
                text = json.dumps(manifest)
                assert not re.search(r"://[^/\"]*:[^@/\"]*@|whsec_|password\"?[=:]", text)


def test_both_schemas_know_the_settings_of_the_bridge(subtests: pytest.Subtests) -> None:
    for path in SCHEMAS:
        with subtests.test(chart=path.parent.name):
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
    assert set(bare) <= {"      podSelector: {matchLabels: {k8s-app: kube-dns}}"}, "of this the line is above"
