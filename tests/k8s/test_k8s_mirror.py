"""The mirror on a cluster: on a volume with its jobs, and on an S3 server with executors, of which one is deleted."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.cache import installed
from tests.k8s import images, node, pods
from tests.k8s.cluster import Cluster, Namespace
from tests.k8s.conftest import made
from tests.k8s.test_k8s_gateway import GATEWAY, install, ready, values
from tests.mirror import s3

pytestmark = [pytest.mark.extended, pytest.mark.k8s]

MIRROR = "bridge-openmessaging-bridge-mirror"
SMALL = {"requests": {"cpu": "200m", "memory": "512Mi"}}
KEY, SECRET = "of-the-test", "of-the-test-too"


@pytest.fixture(scope="module", autouse=True)
def _image(cluster: Cluster) -> None:
    cluster.load(images.saved("mirror"))


def produce(namespace: Namespace, count: int) -> None:
    """Send messages from a pod of the gateway."""
    [name, *_] = ready(namespace)
    lines = "".join(f"message {n}\n" for n in range(count))
    command = ("oms-bridge", "produce", "mirrored", "--lines", "--file=-", "--retry-ms=60000")
    namespace.kubectl("exec", "--stdin", name, "--", *command, given=lines)


def rows(namespace: Namespace, out: str) -> int:
    """Return how many rows the mirror has."""
    execute = ("kubectl", f"--namespace={namespace.name}", "exec", f"{MIRROR}-0", "--")
    query = (*execute, "oms-bridge", "mirror", "query", f"--out={out}", "--json", "SELECT count(*) AS n FROM messages")
    done = namespace.cluster.run(*query)
    try:
        return int(json.loads(done.stdout.splitlines()[-1])["n"])
    except (ValueError, IndexError):
        return -1  # there is no table yet


def job(namespace: Namespace, verb: str) -> str:
    """Run a CronJob now; return its log."""
    namespace.kubectl("create", "job", f"--from=cronjob/{MIRROR}-{verb}", verb)
    namespace.kubectl("wait", "--for=condition=Complete", f"job/{verb}", "--timeout=400s")
    return namespace.kubectl("logs", f"job/{verb}")


def given(kafka: Namespace, **mirror: Any) -> str:  # noqa: ANN401 - values of the chart
    """Return values for one bridge and a mirror."""
    with_policy = json.loads(values(kafka, gateway={"replicas": 1}))
    with_policy["networkPolicy"] |= mirror.pop("networkPolicy", {})
    image = {"pullPolicy": "Never"}
    base = {"enabled": True, "image": image, "resources": SMALL, "args": ["--on-data-loss=record"]}
    return json.dumps(with_policy | {"mirror": base | mirror})


@pytest.fixture
def volume(namespace: Namespace, tmp_path: Path) -> Iterator[None]:
    """A PersistentVolume that the claim of the chart finds."""
    at = namespace.get("nodes")["items"][0]["metadata"]["name"]
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [at]}]}
    spec = {
        "capacity": {"storage": "100Gi"},
        "accessModes": ["ReadWriteOnce"],
        "local": {"path": str(tmp_path)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    named = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": namespace.name}}
    namespace.apply(json.dumps(named | {"spec": spec}))
    yield
    namespace.kubectl("delete", "persistentvolume", namespace.name, "--wait=false")


@pytest.mark.usefixtures("volume")
def test_on_a_volume_with_its_jobs(namespace: Namespace, kafka: Namespace) -> None:
    install(namespace, given(kafka, prune={"enabled": True, "keep": "1d"}))
    produce(namespace, 100)
    namespace.until(lambda: rows(namespace, "/srv/mirror") >= 100)
    job(namespace, "compact")
    job(namespace, "prune")
    before = rows(namespace, "/srv/mirror")
    namespace.kubectl("delete", "pod", f"{MIRROR}-0")
    namespace.kubectl("wait", "--for=condition=Ready", f"pod/{MIRROR}-0", "--timeout=400s")
    produce(namespace, 50)
    namespace.until(lambda: rows(namespace, "/srv/mirror") == before + 50)


@pytest.fixture
def store(cluster: Cluster) -> Iterator[Namespace]:
    """An S3 server in a pod, with a bucket."""
    for namespace in made(cluster, "privileged"):
        program = installed("versitygw", s3.PACKAGE, s3.VERSION)
        texts = {"key": KEY, "secret": SECRET, "bridge": images.named("bridge"), "program": program}
        namespace.apply(pods.manifest("s3", **texts))
        namespace.kubectl("rollout", "status", "deployment/s3", "--timeout=240s")
        yield namespace


def test_executors_write_to_s3_and_one_that_is_lost_is_replaced(
    namespace: Namespace, kafka: Namespace, store: Namespace
) -> None:
    namespace.kubectl(
        "create", "secret", "generic", "store", f"--from-literal=id={KEY}", f"--from-literal=secret={SECRET}"
    )
    env = [
        {"name": "AWS_ENDPOINT_URL", "value": f"http://s3.{store.name}.svc.cluster.local:9000"},
        {"name": "AWS_REGION", "value": "us-east-1"},
        *(
            {"name": name, "valueFrom": {"secretKeyRef": {"name": "store", "key": key}}}
            for name, key in (("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret"))
        ),
    ]
    there = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": store.name}}}
    api = [{"ipBlock": {"cidr": "10.96.0.1/32"}}, {"ipBlock": {"cidr": f"{node.NODE}/32"}}]
    policy = {"storage": [{"to": [there], "ports": [9000]}], "kubernetes": [{"to": api, "ports": [443, 6443]}]}
    out = "s3a://lake/mirror"
    few = {"spark.kubernetes.executor.request.cores": "100m"}
    mirror = {"out": out, "executors": 2, "executor": {"memory": "512m"}, "sparkConf": few, "env": env}
    install(namespace, given(kafka, networkPolicy=policy, **mirror))
    executors = "spark-role=executor"
    namespace.until(lambda: len(namespace.pods(executors)) == 2)
    produce(namespace, 100)
    namespace.until(lambda: rows(namespace, out) >= 100)
    before = rows(namespace, out)
    lost = namespace.pods(executors)[0]["metadata"]["name"]
    namespace.kubectl("delete", "pod", lost, "--grace-period=0", "--force")
    produce(namespace, 50)
    namespace.until(lambda: rows(namespace, out) == before + 50)
    namespace.until(lambda: len(namespace.pods(executors)) == 2)
    log = namespace.kubectl("logs", f"{MIRROR}-0")
    assert "KubernetesClientTimeoutException" not in log
    install(namespace, given(kafka, networkPolicy=policy, out=out, env=env, mode="once"))
    job(namespace, "once")
    assert namespace.pods(GATEWAY)
