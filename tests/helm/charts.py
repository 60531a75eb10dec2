"""The charts, rendered by helm and read back strictly."""

import functools
import json
import shutil
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.helm.program import KUBERNETES, run

HELM: Final = Path(__file__).parents[2] / "helm"
CHART: Final = HELM / "openmessaging-bridge"
LIBRARY: Final = CHART / "charts" / "openmessaging-bridge-lib"
EXAMPLE: Final = HELM / "examples" / "orders"
CASES: Final = {path.stem: path for path in sorted(Path(__file__).with_name("cases").glob("*.yaml"))}
RELEASE: Final = "shop"
NAMESPACE: Final = "messaging"
PODS: Final = {
    "Pod": ("spec",),
    "Deployment": ("spec", "template", "spec"),
    "StatefulSet": ("spec", "template", "spec"),
    "Job": ("spec", "template", "spec"),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
}
"""Where a kind holds the spec of its pods."""

Manifest = dict[str, Any]
"""As a cluster takes it: its schema is Kubernetes' business."""


class _Loader(yaml.CSafeLoader):
    """YAML that refuses a name that stands twice, as a cluster does; PyYAML takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names = [key.value for key, _value in node.value if key.tag != "tag:yaml.org,2002:merge"]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"twice: {twice}", node.start_mark)
        return super().construct_mapping(node, deep)


class Refused(Exception):
    """Helm does not render these values; its text is why."""


def read(text: str) -> list[Manifest]:
    """Return the manifests of a text."""
    return [each for each in yaml.load_all(text, _Loader) if each]


def render(
    values: Mapping[str, Any] | str = "",
    *,
    chart: Path = CHART,
    release: str = RELEASE,
    version: str = KUBERNETES[-1],
) -> Sequence[Manifest]:
    """Return the manifests of these values, or of their YAML, hooks included. Raises `Refused`.

    Each set of values is rendered once per process, so copy a manifest before you change it.
    """
    return _rendered(values if isinstance(values, str) else json.dumps(values), chart, release, version)


@functools.cache
def _rendered(values: str, chart: Path, release: str, version: str) -> Sequence[Manifest]:
    given = ["--namespace", NAMESPACE, "--kube-version", f"{version}.0", "--values", "-"]
    said = run("template", release, chart, *given, given=values)
    if said.returncode:
        raise Refused(said.stderr)
    manifests = read(said.stdout)
    assert manifests, f"helm template of {chart.name} printed no manifest"
    return tuple(manifests)


def case(name: str) -> Sequence[Manifest]:
    """Return the manifests of a file of `cases/`."""
    return render(CASES[name].read_text("utf-8"))


def values_of(name: str) -> dict[str, Any]:
    """Return the values of a file of `cases/`, to be changed at will."""
    values: dict[str, Any] = yaml.safe_load(CASES[name].read_text("utf-8"))
    return values


def example(directory: Path) -> Path:
    """Return a copy of the example with its dependency, as a user's own `helm dependency build` leaves it."""
    copy = directory / "helm"
    if not copy.exists():
        shutil.copytree(HELM, copy, ignore=shutil.ignore_patterns("*.tgz", "Chart.lock"))
        said = run("dependency", "build", copy / "examples" / "orders")
        assert said.returncode == 0, said.stderr
    return copy / "examples" / "orders"


def one(manifests: Sequence[Manifest], kind: str, ending: str = "") -> Manifest:
    """Return the one of this kind whose name ends so."""
    (found,) = [m for m in manifests if m["kind"] == kind and m["metadata"]["name"].endswith(ending)]
    return found


def pods(manifests: Sequence[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Yield the spec of every pod that is made, with what makes it."""
    for manifest in manifests:
        if (path := PODS.get(manifest["kind"])) is not None:
            spec = manifest
            for part in path:
                spec = spec[part]
            yield f"{manifest['kind']}/{manifest['metadata']['name']}", spec


def containers(pod: Manifest) -> list[Manifest]:
    """Return all containers of a pod."""
    return [*pod.get("initContainers", ()), *pod["containers"]]
