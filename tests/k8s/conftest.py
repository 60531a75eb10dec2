"""One cluster for all tests. Where none can be had they skip, which CI counts as a failure."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers.cache import Missing
from tests.k8s import images, node, pods
from tests.k8s.cluster import Cluster, Namespace, running


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """It has a DNS."""
    try:
        with running() as cluster:
            if cluster.folder is not None:
                system = Namespace(cluster, "kube-system")
                system.apply(pods.manifest("dns", dns=node.DNS))
                system.kubectl("rollout", "status", "deployment/coredns", "--timeout=240s")
            yield cluster
    except Missing as missing:
        pytest.skip(f"No Kubernetes: {missing}. Name one in KUBECONFIG, or run the tests as root on Debian 12 with Go")


def made(cluster: Cluster, level: str) -> Iterator[Namespace]:
    """Yield a namespace of a Pod Security level, which is gone at the end."""
    name = f"oms-{uuid.uuid4().hex[:8]}"
    cluster("kubectl", "create", "namespace", name)
    cluster("kubectl", "label", "namespace", name, f"pod-security.kubernetes.io/enforce={level}")
    yield Namespace(cluster, name)
    cluster("kubectl", "delete", "namespace", name, "--wait=false")


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[Namespace]:
    """One in which Kubernetes admits only restricted pods."""
    yield from made(cluster, "restricted")


@pytest.fixture
def client(namespace: Namespace) -> str:
    """The name of a pod that can run `load.py`."""
    return client_in(namespace)


def client_in(namespace: Namespace) -> str:
    """Start it in a namespace."""
    load = json.dumps(Path(__file__).with_name("load.py").read_text("utf-8"))
    namespace.apply(pods.manifest("client", load=load, bridge=images.named("bridge")))
    namespace.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=240s")
    return "client"


@pytest.fixture(scope="session")
def kafka(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """The namespace of a Kafka, `kafka`, which tests may stop and start."""
    for namespace in made(cluster, "privileged"):
        namespace.apply(pods.kafka(namespace.name, tmp_path_factory.mktemp("kafka")))
        namespace.kubectl("rollout", "status", "statefulset/kafka", "--timeout=240s")
        yield namespace


@pytest.fixture(scope="session")
def rabbitmq(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """The namespace of a RabbitMQ, `rabbitmq`, which tests may stop and start."""
    for namespace in made(cluster, "privileged"):
        namespace.apply(pods.rabbitmq(tmp_path_factory.mktemp("rabbitmq") / "node"))
        namespace.kubectl("rollout", "status", "statefulset/rabbitmq", "--timeout=240s")
        yield namespace
