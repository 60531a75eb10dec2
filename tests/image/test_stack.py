"""docker-compose.yml, run: every service becomes healthy and the demo's messages arrive and are mirrored (`make soak`).

The images of others cannot be had everywhere, so stand-ins take their place: the same settings, ports and checks.
"""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import jars
from tests.image import building
from tests.image.docker import Docker
from tests.image.test_compose import FILE

pytestmark = pytest.mark.soak  # builds 2 GB

STANDINS = Path(__file__).with_name("standins")
PORTS = (
    "KAFKA_BRIDGE_PORT",
    "KAFKA_BRIDGE_MANAGEMENT_PORT",
    "RABBITMQ_BRIDGE_PORT",
    "RABBITMQ_BRIDGE_MANAGEMENT_PORT",
    "MIRROR_PORT",
)
FREE = dict.fromkeys(PORTS, "0")
SECONDS = 120.0


@pytest.fixture
def brokers(docker: Docker, name: str, base: str, mirror_image: str, tmp_path: Path) -> dict[str, str]:
    """Service → image of its stand-in."""
    context = tmp_path / "kafka"
    shutil.copytree(STANDINS / "kafka", context)
    jars.classpath()  # fills the cache
    shutil.copytree(jars.home(), context / "libs", ignore=shutil.ignore_patterns("*.jsa"))
    building.build(docker, context, f"{name}-kafka", f"--build-arg=BASE={mirror_image}")
    building.build(docker, STANDINS / "rabbitmq", f"{name}-rabbitmq", f"--build-arg=BASE={base}")
    return {"kafka": f"{name}-kafka", "rabbitmq": f"{name}-rabbitmq"}


@pytest.fixture
def images(bridge_image: str, mirror_image: str, brokers: dict[str, str], tmp_path: Path) -> Path:
    """A file for compose that names the images to run."""
    ours = dict.fromkeys(("bridge-kafka", "bridge-rabbitmq", "producer", "consumer"), bridge_image)
    named = {**ours, "mirror": mirror_image, **brokers}
    file = tmp_path / "images.json"
    file.write_text(json.dumps({"services": {service: {"image": image} for service, image in named.items()}}), "utf-8")
    return file


@pytest.fixture
def stack(docker: Docker, name: str, images: Path) -> Iterator[list[str]]:
    """The arguments of docker that lead to what runs."""
    compose = ["compose", FILE, f"--file={images}", f"--project-name={name}"]
    try:
        docker(*compose, "up", "--no-build", "--wait", "--wait-timeout=300", more=FREE)
        yield compose
    finally:
        print(docker.run(*compose, "logs", "--tail=50", more=FREE).stdout)  # noqa: T201 - shown when it fails
        docker.run(*compose, "down", "--volumes", "--timeout=60", more=FREE)


def test_the_demo_runs_and_ends_in_order(docker: Docker, stack: list[str]) -> None:
    deadline = time.monotonic() + SECONDS
    wanted = {
        f'{url}: customer-3 {{"order": 3}}' for url in ("http://bridge-kafka:8080", "http://bridge-rabbitmq:8080")
    }
    # lines may begin with what erases a line of a terminal
    while not all(line in docker(*stack, "logs", "--no-log-prefix", "consumer", more=FREE) for line in wanted):
        assert time.monotonic() < deadline
        time.sleep(1)
    query = ["exec", "-T", "mirror", "oms-bridge", "mirror", "query", "--out=/srv/mirror", "--json"]
    while json.loads(docker(*stack, *query, "SELECT count(*) AS n FROM messages", more=FREE))["n"] == 0:
        assert time.monotonic() < deadline
        time.sleep(1)
    docker(*stack, "stop", more=FREE)
    rows = docker(*stack, "ps", "--all", "--format={{.Service}} {{.ExitCode}}", more=FREE).splitlines()
    statuses = dict(row.split() for row in rows)
    assert statuses.pop("kafka") in {"0", "143"}  # Java's own, after a SIGTERM
    assert set(statuses.values()) == {"0"}, statuses
