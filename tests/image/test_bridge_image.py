"""The bridge's image, run as in production: not root, a read-only root, no capability, and here without a shell too."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

import bridge
from tests.image import building, container
from tests.image.docker import Docker

pytestmark = pytest.mark.extended

STRIPPED = (*container.HARDENED, container.ALONE)


class Way(NamedTuple):
    """One way to choose the server."""

    server: str
    options: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


WAYS = {
    "default": Way("server Granian (installed by the extra fast)"),
    "variable": Way("server Hypercorn (named by the setting server)", ("--env=OMS_SERVER=hypercorn",)),
    # as the Helm chart does it: its file takes the place of the image's own
    "file": Way(
        "server Hypercorn (named by the setting server)",
        ("--volume={folder}:/etc/oms-bridge:ro",),
        ("serve", "--config", "/etc/oms-bridge/own.yaml"),
    ),
}


@pytest.fixture
def no_shell(tmp_path: Path) -> list[str]:
    empty = tmp_path / "empty"
    empty.touch()
    return [f"--volume={empty}:{shell}:ro" for shell in ("/bin/sh", "/bin/bash")]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_it_serves_and_drains(docker: Docker, bridge_image: str, no_shell: list[str], tmp_path: Path, way: Way) -> None:
    folder = tmp_path / "settings"
    folder.mkdir()
    (folder / "own.yaml").write_text("server: hypercorn\nlog: {level: warning}\n", "utf-8")
    given = [option.format(folder=folder) for option in way.options]
    with container.running(docker, *STRIPPED, *no_shell, *given, bridge_image, *way.command) as running:
        running.wait_until_healthy()
        assert way.server in running.log()
        stored = json.loads(running.exec("oms-bridge", "produce", "orders", "4711", "--json"))
        pulled = json.loads(running.exec("oms-bridge", "pull", "orders", "--group", "billing", "--json"))
        assert stored["messageId"] in json.dumps(pulled)
        assert running.stop() == 0


def test_the_process_has_no_rights(docker: Docker, bridge_image: str) -> None:
    with container.running(docker, *STRIPPED, bridge_image) as running:
        status = running.exec("python", "-c", "print(open('/proc/1/status').read())")
        rights = {name: value.split() for name, _, value in (line.partition(":") for line in status.splitlines())}
        assert rights["Uid"] == ["65532"] * 4
        assert rights["Gid"] == ["65532"] * 4
        assert rights["CapEff"] == ["0000000000000000"]
        assert running.inspect("Config")["User"] == "65532:65532"


def test_nothing_of_the_image_belongs_to_its_user(docker: Docker, bridge_image: str) -> None:
    own = "import os; print([at for at, _, _ in os.walk('/opt') if os.access(at, os.W_OK)])"
    with container.running(docker, container.ALONE, bridge_image) as running:
        assert running.exec("python", "-c", own) == "[]"
        assert "No module named pip" in docker.run("exec", running.name, "python", "-m", "pip").stderr


def test_it_is_not_healthy_while_the_broker_is_away(docker: Docker, bridge_image: str) -> None:
    with container.running(docker, *STRIPPED, "--env=OMS_BACKEND=amqp://127.0.0.1:1", bridge_image) as running:
        while (answer := running.check())[1].endswith("refused"):  # it does not serve yet
            assert running.inspect("State")["Running"], running.log()
        assert answer[0] == 1
        assert answer[1].startswith("not ready: ")


def test_the_health_check_follows_the_management_port(docker: Docker, bridge_image: str) -> None:
    with container.running(docker, *STRIPPED, "--env=OMS_MANAGEMENT=127.0.0.1:9999", bridge_image) as running:
        running.wait_until_healthy()


def test_it_has_what_the_backends_and_servers_need(docker: Docker, bridge_image: str) -> None:
    modules = "kafka, pika, confluent_kafka, uvloop, granian"
    docker("run", "--rm", *STRIPPED, "--entrypoint=python", bridge_image, "-c", f"import {modules}")


def test_no_compiler_is_in_it(docker: Docker, bridge_image: str) -> None:
    find = "import shutil; print([name for name in ('gcc', 'cc', 'as', 'ld') if shutil.which(name)])"
    assert docker("run", "--rm", *STRIPPED, "--entrypoint=python", bridge_image, "-c", find) == "[]"


def test_labels(docker: Docker, bridge_image: str) -> None:
    labels = json.loads(docker("inspect", "--format={{json .Config.Labels}}", bridge_image))
    assert labels["org.opencontainers.image.version"] == bridge.__version__
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_another_version_than_the_bridges_is_refused(
    docker: Docker, bridge_image: str, name: str, base: str, secrets: list[str]
) -> None:
    assert bridge_image  # what was built for it is at hand
    command = [*building.command(building.ROOT, f"{name}-wrong"), f"--build-arg=BASE={base}", *secrets]
    done = docker.run(*command, "--build-arg=VERSION=9.9.9")
    assert done.returncode
    assert f"VERSION=9.9.9 is not that of bridge/__init__.py, {bridge.__version__}" in done.stdout + done.stderr
