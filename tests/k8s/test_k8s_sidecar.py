"""`helm/examples/orders` on a cluster: the sidecar outlives the application, and ends with its Job."""

import json
import time
from pathlib import Path

import pytest

from tests.helm import charts
from tests.k8s import images
from tests.k8s.cluster import Cluster, Namespace

pytestmark = [pytest.mark.extended, pytest.mark.k8s]


@pytest.fixture
def installed(cluster: Cluster, namespace: Namespace, kafka: Namespace, tmp_path: Path) -> Namespace:
    """The example, as its page says: the broker's URL in a Secret."""
    cluster.load(images.orders())
    namespace.kubectl(
        "create", "secret", "generic", "orders-broker",
        f"--from-literal=backend=kafka://kafka.{kafka.name}.svc.cluster.local:9092",
    )  # fmt: skip
    chart = charts.example(tmp_path)
    namespace.helm("install", "shop", chart, "--wait", "--timeout=5m")
    return namespace


def test_the_application_produces_after_its_own_sigterm(installed: Namespace) -> None:
    [pod] = installed.pods("app=orders")
    name = pod["metadata"]["name"]
    installed.until(lambda: "order 1 200 200" in installed.kubectl("logs", name, "--container=orders"))
    installed.kubectl("delete", "pod", name, "--wait=false")
    said = ""
    while (
        done := installed.cluster.run("kubectl", "-n", installed.name, "logs", name, "-c", "orders")
    ).returncode == 0:
        said = done.stdout
        time.sleep(0.5)
    assert [line for line in said.splitlines() if line.startswith("last")] == [f"last {n} 200" for n in range(5)]


def test_a_job_ends_with_both_containers_at_0(installed: Namespace) -> None:
    installed.kubectl("create", "job", "--from=cronjob/shop-nightly", "night")
    installed.kubectl("wait", "--for=condition=Complete", "job/night", "--timeout=240s")
    [pod] = installed.get("pods", "--selector=job-name=night")["items"]
    status = pod["status"]
    ended = [
        each["state"]["terminated"]["exitCode"]
        for each in status["initContainerStatuses"] + status["containerStatuses"]
    ]
    assert ended == [0, 0]
    assert "order 4 200 200 204" in installed.kubectl("logs", pod["metadata"]["name"], "--container=nightly")


def test_an_outage_leaves_the_application_in_its_service(installed: Namespace, kafka: Namespace) -> None:
    """Its own requests may need no message."""
    [pod] = installed.pods("app=orders")
    kafka.kubectl("scale", "statefulset/kafka", "--replicas=0")
    try:
        kafka.until(lambda: not kafka.get("pods", "--selector=app=kafka")["items"])
        time.sleep(20)
        found = json.dumps(installed.get("pod", pod["metadata"]["name"])["status"]["initContainerStatuses"])
        assert '"ready": true' in found
    finally:
        kafka.kubectl("scale", "statefulset/kafka", "--replicas=1")
        kafka.kubectl("rollout", "status", "statefulset/kafka", "--timeout=240s")
