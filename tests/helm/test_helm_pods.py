"""How pods start, are probed, and end."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

import click
import pytest

from bridge.cli.program import main
from bridge.mirror import job
from bridge.settings import Settings
from tests.helm.charts import CASES, Manifest, case, containers, one, pods, render, values_of

pytestmark = pytest.mark.usefixtures("helm")

PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
BESIDE = 5
"""Seconds that docs/operations.md asks for beside the drain."""
WITH_GATEWAY = [name for name in CASES if name not in {"mirror-run", "mirror-executors"}]


def gateway(name: str) -> Manifest:
    """Return the pod of a set of values' gateway."""
    (pod,) = (pod for maker, pod in pods(case(name)) if "Deployment" in maker)
    return pod


def drain_of(name: str) -> float:
    """Return the drain that a set of values asks for, in seconds."""
    settings = values_of(name).get("settings", {})
    return float(settings.get("drain", Settings().drain)) / 1000


def test_the_grace_period_is_longer_than_the_end_of_a_gateway(subtests: pytest.Subtests) -> None:
    for name in WITH_GATEWAY:
        with subtests.test(case=name):
            pod = gateway(name)
            (bridge,) = pod["containers"]
            before = bridge["lifecycle"]["preStop"]["sleep"]["seconds"]
            assert before > 0
            assert pod["terminationGracePeriodSeconds"] >= before + ceil(drain_of(name)) + BESIDE


def test_the_grace_period_follows_the_drain(example: Path, subtests: pytest.Subtests) -> None:
    for drain in (0, 1, 20_000, 60_001, 3_600_000):
        with subtests.test(drain=drain):
            found = dict(pods(render({"bridge": {"settings": {"drain": drain}}}, chart=example)))
            assert found
            for maker, pod in found.items():
                assert pod["terminationGracePeriodSeconds"] == 30 + ceil(drain / 1000) + 10, maker
            manifests = render(values_of("kafka") | {"settings": {"drain": drain}})
            pod = one(manifests, "Deployment")["spec"]["template"]["spec"]
            assert pod["terminationGracePeriodSeconds"] == 5 + ceil(drain / 1000) + 10


def test_a_mirror_has_time_for_the_batch_under_way(subtests: pytest.Subtests) -> None:
    for name in ("mirror-run", "mirror-once", "everything"):
        with subtests.test(case=name):
            mirrors = [pod for _, pod in pods(case(name)) if pod["containers"][0]["name"] == "oms-mirror"]
            assert mirrors
            assert all(pod["terminationGracePeriodSeconds"] > job._LAST_BATCH for pod in mirrors)


def test_every_probe_asks_the_management_port_of_its_container(subtests: pytest.Subtests) -> None:
    for name in CASES:
        for maker, pod in pods(case(name)):
            with subtests.test(case=name, maker=maker):
                for container in containers(pod):
                    probes = {kind: container[kind]["httpGet"] for kind in PROBES if kind in container}
                    assert bool(probes) is maker.startswith(("Deployment", "StatefulSet"))
                    ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
                    for kind, probe in probes.items():
                        ready = "/startedz?wait=360" if maker.startswith("Deployment") else "/readyz"
                        ready = "/livez" if name == "mirror-executors" else ready
                        assert probe["path"] == (ready if kind == "readinessProbe" else "/livez")
                        assert probe["port"] == "oms-management"
                        assert probe["port"] in ports


def test_every_port_that_is_named_exists(subtests: pytest.Subtests) -> None:
    for name in CASES:
        known = {
            port["name"]
            for maker, pod in pods(case(name))
            for container in containers(pod)
            for port in container.get("ports", ())
        }
        asked = {port["targetPort"] for m in case(name) if m["kind"] == "Service" for port in m["spec"]["ports"]}
        for manifest in case(name):
            if manifest["kind"] == "NetworkPolicy":
                rules = manifest["spec"].get("ingress", ())
                ports = [port["port"] for rule in rules for port in rule["ports"]]
                asked |= {port for port in ports if isinstance(port, str)}  # of executors' pods the chart has no spec
        with subtests.test(case=name):
            assert asked
            assert asked - known == set()


def test_every_mount_has_its_volume_and_every_volume_its_mount(subtests: pytest.Subtests) -> None:
    for name in CASES:
        for maker, pod in pods(case(name)):
            with subtests.test(case=name, maker=maker):
                mounts = [mount for c in containers(pod) for mount in c.get("volumeMounts", ())]
                assert {mount["name"] for mount in mounts} == {volume["name"] for volume in pod["volumes"]}
                for container in containers(pod):
                    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
                    assert len(set(paths)) == len(paths)


def test_every_mount_of_the_sidecar_has_its_volume(example: Path) -> None:
    manifests = render(chart=example)
    config = one(manifests, "ConfigMap")["metadata"]["name"]
    for maker, pod in pods(manifests):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert {mount["name"] for mount in pod["initContainers"][0]["volumeMounts"]} == set(volumes), maker
        assert volumes["oms-bridge-config"]["configMap"]["name"] == config


def test_the_sidecar_starts_first_and_stops_last(example: Path) -> None:
    for _, pod in pods(render(chart=example)):
        (sidecar,) = pod["initContainers"]
        assert sidecar["restartPolicy"] == "Always"
        assert sidecar["startupProbe"]["httpGet"]["path"] == "/livez"  # a broker that is away must not keep it down
        ports = {port["name"]: port["containerPort"] for port in sidecar["ports"]}
        assert ports == {"oms-management": 9090}


@pytest.mark.parametrize(
    ("readiness", "path"),
    [({}, "/startedz?wait=360"), ({"waitSeconds": 0}, "/startedz?wait=0"), ({"followBroker": True}, "/readyz")],
    ids=["default", "at once", "as the broker"],
)
def test_readiness_is_chosen_for_sidecar_and_gateway(readiness: dict[str, Any], path: str, example: Path) -> None:
    def probed(manifests: Sequence[Manifest]) -> set[str]:
        bridges = [c for _, pod in pods(manifests) for c in containers(pod) if c["name"] == "oms-bridge"]
        return {bridge["readinessProbe"]["httpGet"]["path"] for bridge in bridges}

    assert probed(render({"bridge": {"readiness": readiness}}, chart=example)) == {path}
    assert probed(render(values_of("kafka") | {"readiness": readiness})) == {path}


def test_two_mirrors_never_write_at_once() -> None:
    assert one(case("mirror-run"), "StatefulSet")["spec"]["replicas"] == 1
    for name in ("mirror-run", "mirror-once", "everything"):
        jobs = [m["spec"] for m in case(name) if m["kind"] == "CronJob"]
        assert jobs
        assert all(job["concurrencyPolicy"] == "Forbid" for job in jobs)


def test_a_mirror_sends_spans_where_the_bridge_does() -> None:
    values = values_of("mirror-run")
    values["settings"] = {"tracing": {"endpoint": "http://collector:4318", "ratio": 0.25, "metrics": 10000}}
    [mirror] = containers(one(render(values), "StatefulSet")["spec"]["template"]["spec"])
    given = {each["name"]: each["value"] for each in mirror["env"] if each["name"].startswith("OMS_TRACING")}
    assert given == {"OMS_TRACING__ENDPOINT": "http://collector:4318", "OMS_TRACING__RATIO": "0.25"}


def test_a_mirror_does_what_it_is_told() -> None:
    def arguments(manifest: Manifest) -> list[str]:
        ((_, pod),) = pods([manifest])
        return list(pod["containers"][0]["args"])

    run, once = case("mirror-run"), case("mirror-once")
    assert arguments(one(run, "StatefulSet")) == [
        *("mirror", "run", "--out=/srv/mirror", "--metrics=0.0.0.0:9091", "--status=/tmp/status.json"),
        *("--conf=spark.driver.memory=2g", "--conf=spark.master=local[2]", "--on-data-loss=record"),
    ]
    assert arguments(one(run, "CronJob", "compact")) == ["mirror", "compact", "--out=/srv/mirror"]
    assert arguments(one(run, "CronJob", "prune")) == ["mirror", "prune", "--out=/srv/mirror", "--keep=30d"]
    assert arguments(one(once, "CronJob", "once")) == [
        *("mirror", "once", "--out=s3a://shop-mirror/bridge", "--conf=spark.driver.memory=2g"),
    ]


def test_the_command_line_knows_every_argument(subtests: pytest.Subtests) -> None:
    """test_helm_runs.py runs the pod of `helm test`, so it is left out here."""
    for name in CASES:
        found = [c["args"] for maker, pod in pods(case(name)) if not maker.startswith("Pod") for c in containers(pod)]
        with subtests.test(case=name):
            assert found
        for given in found:
            with subtests.test(case=name, arguments=given):
                arguments = given
                command: click.Command = main
                while isinstance(command, click.Group):
                    verb, *arguments = arguments
                    command = command.commands[verb]
                command.make_context(verb, arguments)  # raises for unknown options


def test_only_what_reads_the_broker_gets_its_secret() -> None:
    for name in ("mirror-run", "mirror-once"):
        for maker, pod in pods(case(name)):
            reads = not maker.endswith(("compact", "prune", "-test"))
            assert ("shop-kafka" in str(pod["volumes"])) is reads, maker
            variables = {v["name"] for c in containers(pod) for v in c.get("env", ())}
            assert ("OMS_BACKEND_FILE" in variables) is reads, maker


def test_a_volume_of_one_node_is_mounted_on_one_node() -> None:
    def affinity(manifests: Sequence[Manifest]) -> Any:  # noqa: ANN401 - as Kubernetes has it
        ((_, pod),) = pods([one(manifests, "CronJob", "compact")])
        return pod.get("affinity")

    values = values_of("mirror-run")
    (term,) = affinity(render(values))["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    running = one(case("mirror-run"), "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchLabels"].items() <= running.items()
    values["mirror"]["persistence"] = {"accessMode": "ReadWriteMany"}
    assert affinity(render(values)) is None
    values["mirror"]["persistence"] = {"accessMode": "ReadWriteOnce"}
    values["mirror"]["mode"] = "once"
    assert affinity(render(values)) is None


def test_autoscaling_and_replicas_exclude_each_other() -> None:
    scaled = one(case("rabbitmq"), "Deployment")
    scaler = one(case("rabbitmq"), "HorizontalPodAutoscaler")["spec"]
    assert "replicas" not in scaled["spec"]
    assert scaler["scaleTargetRef"] == {
        "apiVersion": scaled["apiVersion"],
        "kind": scaled["kind"],
        "name": scaled["metadata"]["name"],
    }
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (3, 6)
    assert one(case("kafka"), "Deployment")["spec"]["replicas"] == 2


@pytest.mark.parametrize(("name", "protocol"), [("kafka", "kubernetes.io/h2c"), ("tls", "https")])
def test_the_service_says_what_it_speaks(name: str, protocol: str) -> None:
    (port,) = one(case(name), "Service")["spec"]["ports"]
    assert (port["appProtocol"], port["port"]) == (protocol, 8080)


def test_bridges_are_spread_over_zones_and_nodes() -> None:
    pod = one(case("kafka"), "Deployment")["spec"]["template"]
    spread = pod["spec"]["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    assert all(each["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items() for each in spread)
