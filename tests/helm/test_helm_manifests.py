"""Every set of values renders, and a cluster of any supported version would take what comes out."""

import copy
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from kubernetes_validate import utils

from bridge import __version__
from tests.helm.charts import CASES, CHART, EXAMPLE, LIBRARY, Manifest, Refused, case, one, read, render, values_of
from tests.helm.program import KUBERNETES, run

pytestmark = pytest.mark.usefixtures("helm")

OPERATOR: Final = {"ServiceMonitor": "endpoints", "PrometheusRule": "groups"}
"""Kinds of the Prometheus Operator, and what each cannot do without."""
NAME_MAX: Final = {"CronJob": 52, "StatefulSet": 52}
"""The longest name of a kind, in characters. Of any other kind it is 63."""


@pytest.fixture(scope="module", autouse=True)
def _schemas_are_read_once() -> Iterator[None]:
    """Reading Kubernetes' definitions takes ten times as long as validating one manifest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "schema_contents", functools.cache(utils.schema_contents))
        yield


def validate(manifest: Manifest, version: str) -> None:
    if (needed := OPERATOR.get(manifest["kind"])) is None:
        kubernetes_validate.validate(manifest, version, strict=True)
        return
    assert manifest["apiVersion"] == "monitoring.coreos.com/v1"
    assert manifest["spec"][needed]
    # Kubernetes has no schema of these kinds, but their metadata is like everyone's.
    shell = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": manifest["metadata"]}
    kubernetes_validate.validate(shell, version, strict=True)
    assert set(manifest) == {"apiVersion", "kind", "metadata", "spec"}


def test_lint_finds_nothing(example: Path, subtests: pytest.Subtests) -> None:
    for chart in (CHART, LIBRARY, example):
        with subtests.test("defaults", chart=chart.name):
            lint(chart)  # the charts need values: lint only notes that, as information
    for name, path in CASES.items():
        with subtests.test("values", case=name):
            assert "Fail:" not in lint(CHART, "--values", path)


def lint(chart: Path, *values: str | Path) -> str:
    """Return what it printed beside its findings."""
    said = run("lint", "--strict", "--kube-version", f"{KUBERNETES[-1]}.0", *values, chart)
    assert said.returncode == 0, said.stdout
    assert "[ERROR]" not in said.stdout
    assert "[WARNING]" not in said.stdout
    return said.stderr


def test_there_are_enough_sets_of_values() -> None:
    assert len(CASES) >= 8


@pytest.mark.parametrize("version", [KUBERNETES[0], KUBERNETES[-1]])
def test_the_oldest_and_the_newest_cluster_take_every_set_of_values(version: str, subtests: pytest.Subtests) -> None:
    for name in CASES:
        with subtests.test(case=name):
            assert invalid(case(name), version) == {}


def test_clusters_of_every_version_take_all_that_can_be_asked_for(example: Path, subtests: pytest.Subtests) -> None:
    for version in KUBERNETES:
        with subtests.test(version=version):
            everything = render(CASES["everything"].read_text("utf-8"), version=version)
            assert everything == case("everything")
            assert invalid((*everything, *render(chart=example, version=version)), version) == {}


def invalid(manifests: Sequence[Manifest], version: str) -> dict[str, str]:
    """Return what a cluster of this version would not take, with its reason."""
    found = {}
    for manifest in manifests:
        try:
            validate(manifest, version)
        except (kubernetes_validate.ValidationError, AssertionError) as wrong:
            found[f"{manifest['kind']}/{manifest['metadata']['name']}"] = str(wrong)
    return found


def test_clusters_that_are_too_old_are_refused() -> None:
    with pytest.raises(Refused, match="kubeVersion"):
        render(values_of("kafka"), version="1.29")


def test_the_validator_sees_a_misspelt_field_in_every_version(subtests: pytest.Subtests) -> None:
    deployment = copy.deepcopy(one(case("kafka"), "Deployment"))
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    for version in KUBERNETES:
        with subtests.test(version=version), pytest.raises(kubernetes_validate.ValidationError):
            validate(deployment, version)


def test_a_name_that_stands_twice_is_an_error_of_the_manifest() -> None:
    with pytest.raises(yaml.YAMLError, match="twice"):
        read("kind: Pod\nspec: {a: 1, a: 2}\n")


def test_names_are_short_enough_and_differ(subtests: pytest.Subtests) -> None:
    for name in CASES:
        with subtests.test(case=name):
            assert names_too_long(case(name)) == []
            names = [(m["kind"], m["metadata"]["name"]) for m in case(name)]
            assert len(set(names)) == len(names)


def test_a_long_name_is_cut_and_names_still_differ() -> None:
    """The longest name that helm allows for a release, 53 characters, and a long name of the chart behind it."""
    release = "a-release-whose-name-has-as-many-letters-as-it-may-ha"
    assert len(release) == 53
    values = values_of("ipv6-and-names")
    values["nameOverride"] = values.pop("fullnameOverride")
    manifests = render(values, release=release)
    kinds = [m["kind"] for m in manifests]
    assert sorted(kinds) == sorted(m["kind"] for m in case("ipv6-and-names"))
    assert names_too_long(manifests) == []
    names = {(m["kind"], m["metadata"]["name"]) for m in manifests}
    assert len(names) == len(manifests)
    assert {release.startswith(name[:30]) for _, name in names} == {True}, names
    # A label's value is at most 63 characters long.
    labels = {value for m in manifests for value in m["metadata"]["labels"].values()}
    assert {value for value in labels if len(value) > 63} == set()
    assert release in labels


def names_too_long(manifests: Sequence[Manifest]) -> list[str]:
    found = [(m["kind"], m["metadata"]["name"]) for m in manifests]
    return [f"{kind}/{name}" for kind, name in found if len(name) > NAME_MAX.get(kind, 63)]


def selector(manifest: Manifest) -> dict[str, str] | None:
    """Return what a manifest selects pods by."""
    spec = manifest.get("spec", {})
    match manifest["kind"]:
        case "Service":
            found = spec["selector"]
        case "Deployment" | "StatefulSet" | "PodDisruptionBudget":
            found = spec["selector"]["matchLabels"]
        case "NetworkPolicy":
            found = spec["podSelector"]["matchLabels"]
        case _:
            return None
    return dict(found)


def test_a_selector_finds_the_pods_of_one_component(subtests: pytest.Subtests) -> None:
    for name in CASES:
        labels = []
        for manifest in case(name):
            if manifest["kind"] in {"Deployment", "StatefulSet"}:
                labels.append(manifest["spec"]["template"]["metadata"]["labels"])
            elif manifest["kind"] == "CronJob":
                labels.append(manifest["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"])
            elif "executor.yaml" in manifest.get("data", ()):
                labels.append(yaml.safe_load(manifest["data"]["executor.yaml"])["metadata"]["labels"])
        selecting = [(manifest, wanted) for manifest in case(name) if (wanted := selector(manifest)) is not None]
        with subtests.test(case=name):
            assert selecting
            found = {
                f"{manifest['kind']}/{manifest['metadata']['name']}": {
                    each["app.kubernetes.io/component"] for each in labels if wanted.items() <= each.items()
                }
                for manifest, wanted in selecting
            }
            assert {who: components for who, components in found.items() if len(components) != 1} == {}


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


def test_pods_are_replaced_when_the_settings_change_and_only_then() -> None:
    def annotations(**changed: object) -> dict[str, str]:
        pod = one(render(values_of("kafka") | changed), "Deployment")["spec"]["template"]
        found: dict[str, str] = pod["metadata"]["annotations"]
        return found

    before = annotations(settings={"limits": {"batch": 7}})
    assert annotations(settings={"limits": {"batch": 8}}) != before
    assert annotations(settings={"limits": {"batch": 7}}, ports={"data": 18080}) != before, "the ports are settings too"
    assert annotations(settings={"limits": {"batch": 7}}, gateway={"replicas": 3}) == before
