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
    "Job": ("spec", "template", "spec"),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
}
"""Where a kind holds the spec of its pods."""

Manifest = dict[str, Any]
"""As a cluster takes it: its schema is Kubernetes' business."""


class _Loader(yaml.SafeLoader):
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


def render(chart: Path, *arguments: str | Path, version: str = KUBERNETES[-1]) -> list[Manifest]:
    """Return a chart's manifests, hooks included. Raises `Refused`."""
    given = ["--namespace", NAMESPACE, "--kube-version", f"{version}.0"]
    said = run("template", RELEASE, chart, *given, *arguments)
    if said.returncode:
        raise Refused(said.stderr)
    return read(said.stdout)


@functools.cache
def case(name: str) -> Sequence[Manifest]:
    """Return the manifests of a set of values of ours. Do not change them: tests share them."""
    return render(CHART, "--values", CASES[name])


def rendered(values: Mapping[str, Any], directory: Path, *, chart: Path = CHART) -> list[Manifest]:
    """Return the manifests of these values. Raises `Refused`."""
    file = directory / "values.yaml"
    file.write_text(json.dumps(values), "utf-8")
    return render(chart, "--values", file)


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
