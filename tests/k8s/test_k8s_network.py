"""What reaches what, by packets: the NetworkPolicy with clients inside and outside, and TLS."""

import base64
import json
from collections.abc import Iterator

import pytest
import trustme

from tests.k8s import node
from tests.k8s.cluster import Cluster, Namespace
from tests.k8s.conftest import client_in, made
from tests.k8s.test_k8s_gateway import GATEWAY, SERVICE, install, ready, values

pytestmark = [pytest.mark.extended, pytest.mark.k8s]

CONNECT = """
import socket, sys
for place in sys.argv[1:]:
    host, port = place.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 3).close()
        print(place, "open")
    except OSError as error:
        print(place, "closed")
"""
OUTSIDE = "10.98.0.2"


@pytest.fixture
def elsewhere(cluster: Cluster) -> Iterator[Namespace]:
    """Another namespace, with a client."""
    for namespace in made(cluster, "restricted"):
        client_in(namespace)
        yield namespace


def reached(namespace: Namespace, pod: str, *places: str) -> list[bool]:
    """Return for each `host:port` whether a pod can connect to it."""
    said = namespace.kubectl("exec", pod, "--", "python", "-c", CONNECT, *places)
    return [line.endswith("open") for line in said.splitlines()]


def test_the_policy_lets_in_and_out_what_it_names(namespace: Namespace, elsewhere: Namespace, kafka: Namespace) -> None:
    client_in(namespace)
    install(namespace, values(kafka, gateway={"replicas": 1}))
    [bridge] = namespace.pods(GATEWAY)
    address, name = bridge["status"]["podIP"], bridge["metadata"]["name"]
    data, management = f"{address}:8080", f"{address}:9090"
    broker = f"kafka.{kafka.name}.svc.cluster.local:9092"
    service = f"{SERVICE}.{namespace.name}.svc:8080"
    namespace.until(lambda: reached(elsewhere, "client", data) == [False])
    assert reached(elsewhere, "client", data, service, management) == [False, False, False]
    assert reached(namespace, "client", data, service, management) == [True, True, False]
    [other] = elsewhere.get("pods", "--selector=app=client")["items"]
    away = [f"{other['status']['podIP']}:1", "kubernetes.default.svc:443", f"{node.NODE}:6443"]
    assert reached(namespace, name, broker, *away) == [True, False, False, False]
    scrapers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": elsewhere.name}}}]
    policy = json.loads(values(kafka))["networkPolicy"] | {"scrapers": scrapers}
    install(namespace, values(kafka, gateway={"replicas": 1}, networkPolicy=policy))
    namespace.until(lambda: reached(elsewhere, "client", management) == [True])
    assert reached(elsewhere, "client", data) == [False]


def test_clients_outside_the_cluster_are_those_that_the_policy_names(namespace: Namespace, kafka: Namespace) -> None:
    cluster = namespace.cluster
    if cluster.folder is None:
        pytest.skip("only in a cluster of our own can a client be put outside")
    policy = json.loads(values(kafka))["networkPolicy"]
    outside = {"service": {"type": "NodePort"}, "replicas": 1}

    def let_in(network: str) -> int:
        """Install with clients of a network; return the port of the node."""
        named = policy | {"clients": [{"ipBlock": {"cidr": network}}]}
        install(namespace, values(kafka, gateway=outside, networkPolicy=named))
        port: int = namespace.get("service", SERVICE)["spec"]["ports"][0]["nodePort"]
        return port

    cluster("sh", "-ec", f"""
        mkdir -p /run/netns; mount -t tmpfs tmpfs /run/netns; ip netns add outside
        ip link add ext0 type veth peer name ext1 netns outside
        ip addr add 10.98.0.1/24 dev ext0; ip link set ext0 up
        ip -n outside addr add {OUTSIDE}/24 dev ext1; ip -n outside link set ext1 up
        ip -n outside route add default via 10.98.0.1
    """)  # fmt: skip
    ask = ("ip", "netns", "exec", "outside", "curl", "--silent", "--max-time", "5", "--write-out", "%{http_code}")
    url = f"http://{node.NODE}:{{}}/v1/capabilities"
    port = let_in("198.51.100.0/24")
    namespace.until(lambda: cluster.run(*ask, url.format(port)).stdout.endswith("000"))
    port = let_in(f"{OUTSIDE}/32")
    namespace.until(lambda: cluster.run(*ask, url.format(port)).stdout.endswith("200"))


def test_tls_and_helm_test_with_it(namespace: Namespace, kafka: Namespace) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert(SERVICE)
    files = {
        "tls.crt": b"".join(blob.bytes() for blob in issued.cert_chain_pems),
        "tls.key": issued.private_key_pem.bytes(),
        "ca.crt": authority.cert_pem.bytes(),
    }
    data = {name: base64.b64encode(content).decode() for name, content in files.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls"}, "type": "kubernetes.io/tls"}
    namespace.apply(json.dumps(secret | {"data": data}))
    install(namespace, values(kafka, tls={"existingSecret": "tls"}))
    assert len(ready(namespace)) == 2
    assert "helm test, message" in namespace.helm("test", "bridge", "--logs")


def test_messages_in_a_journal_outlive_a_killed_bridge(namespace: Namespace) -> None:
    """In /tmp it ends with the pod; the chart has no other volume."""
    install(namespace, json.dumps({"backend": {"url": "memory://?journal=/tmp/journal"}, "gateway": {"replicas": 1}}))
    [name] = ready(namespace)
    namespace.kubectl("exec", name, "--", "oms-bridge", "produce", "orders", "kept")
    namespace.kill(name)
    namespace.until(lambda: namespace.pods(GATEWAY)[0]["status"]["containerStatuses"][0]["restartCount"] == 1)
    namespace.until(lambda: len(ready(namespace)) == 1)
    [name] = ready(namespace)
    assert "kept" in namespace.kubectl(
        "exec", name, "--", "oms-bridge", "pull", "orders", "--group=app", "--wait-ms=9000"
    )
