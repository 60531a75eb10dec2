"""The mirror's image: it mirrors Kafka with the jars that it brings, becomes healthy, ends in order."""

import json
from collections.abc import Iterator

import pytest

from tests.image import container
from tests.image.docker import Docker
from tests.kafka import clients

pytestmark = pytest.mark.extended  # builds 1.6 GB

SCRATCH = "--tmpfs=/tmp:exec,mode=1777"
ROWS = 200


@pytest.fixture
def mirror_volume(docker: Docker) -> Iterator[str]:
    volume = docker("volume", "create")
    yield f"--volume={volume}:/srv/mirror"
    docker.run("volume", "rm", volume)


def test_once_mirrors_kafka_with_the_jars_in_the_image(
    docker: Docker, mirror_image: str, mirror_volume: str, kafka_servers: str
) -> None:
    topic = clients.new_topic(kafka_servers)
    clients.produce(kafka_servers, topic, *(b"%d" % number for number in range(ROWS)))
    run = ["run", "--rm", "--network=host", *container.HARDENED, SCRATCH, mirror_volume]
    backend = f"--env=OMS_BACKEND=kafka://{kafka_servers}"
    once = ["mirror", "once", "--out=/srv/mirror", "--on-data-loss=record"]  # bridges of other tests trim their topics
    docker(*run, backend, mirror_image, *once)
    query = "SELECT destination, count(*) AS n FROM messages GROUP BY ALL"
    said = docker(*run, mirror_image, "mirror", "query", "--out=/srv/mirror", "--json", query)
    assert {"destination": topic, "n": ROWS} in map(json.loads, said.splitlines())


def test_run_is_healthy_and_ends_in_order(docker: Docker, mirror_image: str, mirror_volume: str) -> None:
    bridge = container.running(docker, *container.HARDENED, container.ALONE, mirror_image, "serve")
    with bridge as beside:
        options = [*container.HARDENED, f"--network=container:{beside.name}", SCRATCH, mirror_volume]
        with container.running(docker, *options, mirror_image) as mirror:
            mirror.wait_until_healthy()
            status = mirror.exec("python", "-c", "print(open('/proc/1/status').read())")
            assert "Uid:\t65532" in status
            assert mirror.stop() == 0


def test_nothing_that_fetches_or_compiles_is_in_the_image(docker: Docker, mirror_image: str) -> None:
    find = "import shutil; print([name for name in ('mvn', 'pip', 'git', 'curl', 'gcc') if shutil.which(name)])"
    assert docker("run", "--rm", container.ALONE, "--entrypoint=python", mirror_image, "-c", find) == "[]"
