"""The gateway on a cluster: the page word for word, upgrades, outages, ends of pods under load."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.docs.commands import commands
from tests.helm import program
from tests.helm.charts import CHART, HELM
from tests.helm.test_helm_page import VALUES
from tests.k8s import node, pods, programs
from tests.k8s.cluster import Cluster, Namespace

pytestmark = [pytest.mark.extended, pytest.mark.k8s]

GATEWAY = "app.kubernetes.io/component=gateway"
SERVICE = "bridge-openmessaging-bridge"
URL = f"http://{SERVICE}:8080"
ASK = f"""
import http.client, sys
c = http.client.HTTPConnection("{SERVICE}", 8080, timeout=70)
c.request("POST", "/v1/messages", b"x", {{"x-oms-version": "1.0.0", "x-oms-h-destination": "asked"}})
r = c.getresponse()
print(r.status, r.read().decode())
"""


def values(broker: Namespace, app: str = "kafka", port: int = 9092, **more: Any) -> str:  # noqa: ANN401 - of the chart
    """Return values for bridges in front of a broker: the Kafka of a namespace, without `backend` in `more`."""
    peer = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": broker.name}},
        "podSelector": {"matchLabels": {"app": app}},
    }
    small = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
    gateway = {"resources": small, **more.pop("gateway", {})}
    return json.dumps({
        "backend": {"url": f"kafka://kafka.{broker.name}.svc.cluster.local:9092"},
        "networkPolicy": {"brokers": [{"to": [peer], "ports": [port]}]},
        "image": {"pullPolicy": "Never"},
        "gateway": gateway,
        **more,
    })  # fmt: skip


def install(namespace: Namespace, given: str) -> None:
    namespace.helm("upgrade", "--install", "bridge", CHART, "--values=-", "--wait", "--timeout=5m", given=given)


def ready(namespace: Namespace) -> list[str]:
    """Return the names of the gateway's pods that are ready."""
    return [
        pod["metadata"]["name"]
        for pod in namespace.pods(GATEWAY)
        if any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))
    ]


def test_the_page_word_for_word(cluster: Cluster, kafka: Namespace, tmp_path: Path) -> None:
    (tmp_path / "helm").symlink_to(HELM)
    (tmp_path / "values.yaml").write_text(VALUES[0])
    (tmp_path / "broker-url.txt").write_text("kafka://kafka:9092\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/helm").symlink_to(program.helm())
    (tmp_path / "kubeconfig").write_text(Path(cluster.environment["KUBECONFIG"]).read_text())
    environment = {
        "PATH": f"{tmp_path}/bin:{cluster.environment['PATH']}",
        "HELM_NAMESPACE": kafka.name,
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
    }
    own = Cluster({**cluster.environment, **environment}, cluster.inside, cluster.folder)

    def run(command: str) -> str:
        return own("env", "-C", tmp_path, "sh", "-ec", command)

    run(f"kubectl config set-context --current --namespace={kafka.name}")
    page = [c.text for c in commands("docs/kubernetes.md") if c.needs == "Kubernetes"]
    said = [run(command) for command in page if "dependency" not in command]
    assert len(said) == 4
    assert "Phase:          Succeeded" in said[2]
    assert "helm test, message" in said[2]
    assert "STATUS: deployed" in said[3]
    run("helm test bridge --logs")  # again
    run("helm rollback bridge --wait")
    run(f"kubectl rollout restart deployment {SERVICE}; kubectl rollout status deployment {SERVICE} --timeout=240s")
    run("helm uninstall bridge --wait")
    assert kafka.pods(GATEWAY) == []


def test_enabling_autoscaling_keeps_the_bridges_that_run(namespace: Namespace, kafka: Namespace) -> None:
    install(namespace, values(kafka, gateway={"replicas": 3}))
    before = ready(namespace)
    install(namespace, values(kafka, gateway={"autoscaling": {"enabled": True}}))
    assert namespace.get("deployment", SERVICE)["spec"]["replicas"] == 3
    assert set(before) <= set(ready(namespace))


def test_helm_4_installs_upgrades_and_rolls_back(namespace: Namespace, kafka: Namespace) -> None:
    """It applies on the server's side."""
    helm = (program.helm_4(), f"--namespace={namespace.name}")
    run = namespace.cluster
    run(*helm, "install", "bridge", CHART, "--values=-", "--wait", "--timeout=5m", given=values(kafka))
    before = ready(namespace)
    assert "helm test, message" in run(*helm, "test", "bridge", "--logs")
    upgrade = (*helm, "upgrade", "bridge", CHART, "--values=-", "--rollback-on-failure")
    broken = values(kafka, image={"pullPolicy": "Never", "tag": "none"})
    assert namespace.cluster.run(*upgrade, "--timeout=30s", given=broken).returncode
    namespace.until(lambda: len(namespace.pods(GATEWAY)) == 2)
    assert set(ready(namespace)) & set(before)
    run(*upgrade, "--timeout=5m", given=values(kafka, gateway={"replicas": 3}))
    assert len(ready(namespace)) == 3


def test_bridges_are_added_under_load_and_nothing_is_lost(namespace: Namespace, kafka: Namespace, client: str) -> None:
    cluster = namespace.cluster
    if cluster.folder is not None:
        as_admin = " ".join(f"--{each}kubeconfig=admin.conf" for each in ("", "authentication-", "authorization-"))
        kubelet = "--kubelet-insecure-tls --kubelet-preferred-address-types=InternalIP --metric-resolution=15s"
        given = f"{as_admin} --secure-port=4443 --cert-dir=pki/metrics {kubelet}"
        start = f"exec {programs.metrics_server()} {given} > logs/metrics 2>&1 &"
        cluster("sh", "-ec", f"cd {cluster.folder}; {start}")
        Namespace(cluster, "kube-system").apply(pods.manifest("metrics", node=node.NODE))
    install(namespace, values(kafka, gateway={"autoscaling": {"enabled": True, "targetCPU": 50}}))
    namespace.until(lambda: "unknown" not in namespace.kubectl("get", "hpa"))
    with ThreadPoolExecutor() as pool:
        loading = pool.submit(namespace.kubectl, "exec", client, "--", "python", "/client/load.py", "90", URL, "orders")
        namespace.until(lambda: len(ready(namespace)) > 2)
        assert json.loads(loading.result())["lost"] == []


def test_a_failing_helm_test_says_why(namespace: Namespace) -> None:
    install(namespace, json.dumps({"backend": {"url": "memory://"}, "gateway": {"replicas": 0}}))
    began = time.monotonic()
    done = namespace.cluster.run(program.helm(), f"--namespace={namespace.name}", "test", "bridge", "--logs")
    assert done.returncode == 1
    assert time.monotonic() - began < 180
    assert "oms-bridge produce" in done.stdout
    assert "cannot be reached" in done.stdout


@pytest.fixture
def outage(kafka: Namespace) -> Iterator[None]:
    """No Kafka runs."""

    def scale(replicas: int) -> None:
        kafka.kubectl("scale", "statefulset/kafka", f"--replicas={replicas}")
        kafka.kubectl("rollout", "status", "statefulset/kafka", "--timeout=240s")
        kafka.until(lambda: len(kafka.get("pods", "--selector=app=kafka")["items"]) == replicas)

    scale(0)
    yield
    scale(1)


def test_in_an_outage_clients_get_the_reason_and_a_drain_goes_on(
    namespace: Namespace, kafka: Namespace, client: str, request: pytest.FixtureRequest
) -> None:
    install(namespace, values(kafka, readiness={"waitSeconds": 15}, settings={"timeouts": {"produce": 2000}}))
    before = ready(namespace)
    assert len(before) == 2
    request.getfixturevalue("outage")
    manage = "import urllib.request as r; r.urlopen('http://127.0.0.1:9090/readyz')"
    for pod in before:
        namespace.until(lambda pod=pod: "503" in namespace.cluster.run(  # type: ignore[misc]
            "kubectl", f"--namespace={namespace.name}", "exec", pod, "--", "python", "-c", manage).stdout)  # fmt: skip
    time.sleep(15)  # two probes of readiness and more
    assert ready(namespace) == before
    status, said = namespace.kubectl("exec", client, "--", "python", "-c", ASK).split(" ", 1)
    assert status in {"503", "504"}
    assert json.loads(said)["code"] in {"backend-unavailable", "outcome-unknown"}
    drain(namespace)
    assert not set(ready(namespace)) & set(before)


def drain(namespace: Namespace) -> None:
    """Drain the node of the gateway, which takes new pods at once: it is the only one."""
    at = namespace.pods(GATEWAY)[0]["spec"]["nodeName"]
    selected = f"--pod-selector={GATEWAY},app.kubernetes.io/instance=bridge"
    with ThreadPoolExecutor() as pool:
        drain = ("kubectl", "drain", at, selected, "--delete-emptydir-data", "--timeout=240s")
        draining = pool.submit(namespace.cluster, *drain)
        namespace.until(lambda: draining.done() or namespace.get("node", at)["spec"].get("unschedulable"))
        namespace.cluster("kubectl", "uncordon", at)
        draining.result()
    namespace.until(lambda: len(ready(namespace)) == 2)


def test_nothing_is_lost_while_bridges_come_and_go(namespace: Namespace, kafka: Namespace, client: str) -> None:
    install(namespace, values(kafka))
    load = ("exec", client, "--", "python", "/client/load.py", "100", URL, "orders")
    with ThreadPoolExecutor() as pool:
        loading = pool.submit(namespace.kubectl, *load)
        namespace.kubectl("rollout", "restart", f"deployment/{SERVICE}")
        namespace.kubectl("rollout", "status", f"deployment/{SERVICE}", "--timeout=240s")
        for how in (["--wait=false"], ["--grace-period=0", "--force"]):
            namespace.kubectl("delete", "pod", ready(namespace)[0], *how)
            namespace.until(lambda: len(ready(namespace)) == 2)
        for pod in ready(namespace):
            namespace.kill(pod)
        namespace.until(lambda: len(ready(namespace)) == 2)
        drain(namespace)
        said = loading.result()
    ledger = json.loads(said)
    assert ledger["lost"] == []
    assert ledger["sent"] > 100
    # two pulls and a stream with its credit, and four bridges that ended without a drain
    assert ledger["twice"] <= (2 + 64) * 4, ledger
    assert ledger["answers"]["stream draining"], ledger


def test_rabbitmq_in_a_pod(namespace: Namespace, rabbitmq: Namespace, client: str) -> None:
    """Also while it is killed, and bridges with it."""
    url = f"amqp://guest:guest@rabbitmq.{rabbitmq.name}.svc.cluster.local:5672"
    namespace.kubectl("create", "secret", "generic", "broker", f"--from-literal=backend={url}")
    install(namespace, values(rabbitmq, "rabbitmq", 5672, backend={"existingSecret": "broker"}))
    with ThreadPoolExecutor() as pool:
        loading = pool.submit(namespace.kubectl, "exec", client, "--", "python", "/client/load.py", "60", URL, "orders")
        time.sleep(10)
        rabbitmq.kill("rabbitmq-0")
        rabbitmq.until(lambda: rabbitmq.get("pod", "rabbitmq-0")["status"]["containerStatuses"][0]["ready"])
        for pod in ready(namespace):
            namespace.kill(pod)
        ledger = json.loads(loading.result())
    assert ledger["lost"] == []
    assert ledger["sent"] > 100, ledger
