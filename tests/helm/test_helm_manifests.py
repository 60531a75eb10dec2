"""Every set of values renders, and a cluster of any supported version would take what comes out."""

import copy
from pathlib import Path

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from bridge import __version__
from tests.helm.charts import CASES, CHART, EXAMPLE, LIBRARY, Manifest, Refused, case, one, read, render, rendered
from tests.helm.program import KUBERNETES, run

OPERATOR = {"ServiceMonitor": "endpoints", "PrometheusRule": "groups"}
"""Kinds of the Prometheus Operator, and what each cannot do without."""


def validate(manifest: Manifest, version: str) -> None:
    if (needed := OPERATOR.get(manifest["kind"])) is None:
        kubernetes_validate.validate(manifest, version, strict=True)
        return
    assert manifest["apiVersion"] == "monitoring.coreos.com/v1"
    assert manifest["spec"][needed]
    # What is around the spec is like everywhere.
    shell = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": manifest["metadata"]}
    kubernetes_validate.validate(shell, version, strict=True)
    assert set(manifest) == {"apiVersion", "kind", "metadata", "spec"}


@pytest.mark.parametrize("name", CASES)
def test_lint_has_nothing_to_say(name: str) -> None:
    said = run("lint", "--strict", "--kube-version", f"{KUBERNETES[-1]}.0", "--values", CASES[name], CHART)
    assert said.returncode == 0, said.stdout
    assert "[ERROR]" not in said.stdout
    assert "[WARNING]" not in said.stdout
    assert "Fail:" not in said.stderr


@pytest.mark.parametrize("chart", [CHART, LIBRARY], ids=["chart", "library"])
def test_lint_takes_the_defaults(chart: Path) -> None:
    said = run("lint", "--strict", "--kube-version", f"{KUBERNETES[-1]}.0", chart)
    assert said.returncode == 0, said.stdout


def test_lint_takes_the_example(example: Path) -> None:
    said = run("lint", "--strict", "--kube-version", f"{KUBERNETES[-1]}.0", example)
    assert said.returncode == 0, said.stdout


def test_there_are_enough_sets_of_values() -> None:
    assert len(CASES) >= 8


@pytest.mark.parametrize("version", [KUBERNETES[0], KUBERNETES[-1]])
@pytest.mark.parametrize("name", CASES)
def test_clusters_take_the_manifests(name: str, version: str) -> None:
    for manifest in case(name):
        validate(manifest, version)


@pytest.mark.parametrize("version", KUBERNETES)
def test_clusters_of_every_version_take_all_that_can_be_asked_for(example: Path, version: str) -> None:
    everything = render(CHART, "--values", CASES["everything"], version=version)
    assert everything == case("everything")
    for manifest in (*everything, *render(example, version=version)):
        validate(manifest, version)


def test_clusters_that_are_too_old_are_refused() -> None:
    with pytest.raises(Refused, match="kubeVersion"):
        render(CHART, "--values", CASES["kafka"], version="1.29")


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_judge_sees_a_misspelt_field(version: str) -> None:
    deployment = copy.deepcopy(one(case("kafka"), "Deployment"))
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(deployment, version)


def test_the_judge_sees_a_name_that_stands_twice() -> None:
    with pytest.raises(yaml.YAMLError, match="twice"):
        read("kind: Pod\nspec: {a: 1, a: 2}\n")


def test_names_are_short_enough_and_differ() -> None:
    for manifests in (case("ipv6-and-names"), case("everything")):
        names = [(m["kind"], m["metadata"]["name"]) for m in manifests]
        assert len(set(names)) == len(names)
        assert all(len(name) <= (52 if kind == "CronJob" else 63) for kind, name in names)


def test_a_long_name_of_a_release_is_cut(tmp_path: Path) -> None:
    long = "a-release-whose-name-has-as-many-letters-as-it-may-ha"
    (tmp_path / "v.yaml").write_text(CASES["ipv6-and-names"].read_text().replace("fullnameOverride", "nameOverride"))
    said = run("template", long, CHART, "--kube-version", "1.37.0", "--values", tmp_path / "v.yaml")
    manifests = read(said.stdout)
    assert all(len(m["metadata"]["name"]) <= 52 for m in manifests)
    assert all(len(value) <= 63 for m in manifests for value in m["metadata"]["labels"].values())


def selector(manifest: Manifest) -> dict[str, str] | None:
    """Return what a manifest selects pods by."""
    spec = manifest.get("spec", {})
    match manifest["kind"]:
        case "Service":
            found = spec["selector"]
        case "Deployment" | "PodDisruptionBudget":
            found = spec["selector"]["matchLabels"]
        case "NetworkPolicy":
            found = spec["podSelector"]["matchLabels"]
        case _:
            return None
    return dict(found)


@pytest.mark.parametrize("name", CASES)
def test_what_selects_pods_finds_those_of_one_component(name: str) -> None:
    labels = []
    for manifest in case(name):
        if manifest["kind"] == "Deployment":
            labels.append(manifest["spec"]["template"]["metadata"]["labels"])
        elif manifest["kind"] == "CronJob":
            labels.append(manifest["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"])
    for manifest in case(name):
        if (wanted := selector(manifest)) is not None:
            found = {each["app.kubernetes.io/component"] for each in labels if wanted.items() <= each.items()}
            assert len(found) == 1, (manifest["kind"], manifest["metadata"]["name"])


def test_versions_are_those_of_the_bridge() -> None:
    library = yaml.safe_load((LIBRARY / "values.yaml").read_text())
    assert library["image"]["tag"] == __version__
    for chart in (CHART, LIBRARY):
        about = yaml.safe_load((chart / "Chart.yaml").read_text())
        assert (about["version"], about["appVersion"]) == (__version__, __version__)
        assert about["kubeVersion"] == f">={KUBERNETES[0]}.0-0"
    for chart in (CHART, EXAMPLE):
        (dependency,) = yaml.safe_load((chart / "Chart.yaml").read_text())["dependencies"]
        assert dependency["version"] == __version__


@pytest.mark.parametrize("number", [1, 0])
def test_a_change_of_the_settings_replaces_the_pods(tmp_path: Path, number: int) -> None:
    values = yaml.safe_load(CASES["kafka"].read_text())
    values["settings"] = {"limits": {"batch": 7 + number}}
    changed = one(rendered(values, tmp_path), "Deployment")["spec"]["template"]["metadata"]["annotations"]
    values["settings"] = {"limits": {"batch": 7}}
    before = one(rendered(values, tmp_path), "Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert (changed != before) is bool(number)
