"""What the manifests say is run: the gateway's container as a process, and what `helm test` does to it."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.helm.charts import Manifest, case, one, pods, render, values_of
from tests.launch import Bridge

pytestmark = pytest.mark.usefixtures("helm")

PROGRAM = Path(sys.executable).with_name("oms-bridge")


def run_containers(
    bridge: Bridge, pod: Manifest, messages: str, directory: Path
) -> list[subprocess.CompletedProcess[str]]:
    """Run the containers of the pod of `helm test`, one after the other, against this bridge."""
    (directory / "messages").write_text(messages)
    places = {
        "/etc/messages/messages": str(directory / "messages"),
        "http://shop-openmessaging-bridge:8080": bridge.url,
    }
    said = []
    for container in (*pod["initContainers"], *pod["containers"]):
        arguments = container["args"]
        for there, here in places.items():
            arguments = [argument.replace(there, here) for argument in arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OMS_")}
        said.append(subprocess.run([PROGRAM, *arguments], env=environment, capture_output=True, text=True, check=False))
    return said


def test_helm_test_produces_and_pulls(tmp_path: Path) -> None:
    pod = one(case("memory"), "Pod")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    messages = one(case("memory"), "ConfigMap", "-test")["data"]["messages"]
    with Bridge(tmp_path / "bridge") as bridge:
        produced, pulled = run_containers(bridge, pod["spec"], messages, tmp_path)
        assert produced.returncode == 0, produced.stderr
        assert len(produced.stdout.splitlines()) == 32
        assert pulled.returncode == 0, pulled.stderr
        assert "helm test, message 0" in pulled.stdout


def test_helm_test_fails_where_no_bridge_is(tmp_path: Path) -> None:
    pod = one(case("memory"), "Pod")["spec"]
    bridge = Bridge(tmp_path / "bridge")
    assert bridge.terminate() == 0
    produced, pulled = run_containers(bridge, pod, "one\n", tmp_path)
    assert produced.returncode == 1
    assert pulled.returncode == 1


def test_helm_test_fails_where_nothing_comes(tmp_path: Path) -> None:
    pod = one(case("memory"), "Pod")["spec"]
    pod = {**pod, "initContainers": []}
    pod["containers"] = [{"args": [a.replace("--wait-ms=20000", "--wait-ms=1") for a in pod["containers"][0]["args"]]}]
    with Bridge(tmp_path / "bridge") as bridge:
        (pulled,) = run_containers(bridge, pod, "", tmp_path)
    assert pulled.returncode == 3


@pytest.mark.parametrize("server", ["granian", "hypercorn"])
def test_the_bridge_serves_with_the_rendered_settings_and_answers_every_probe(server: str, tmp_path: Path) -> None:
    manifests = render(values_of("memory") | {"settings": {"server": server}})
    text = one(manifests, "ConfigMap", "shop-openmessaging-bridge")["data"]["bridge.yaml"]
    (tmp_path / "bridge.yaml").write_text(text)
    ((_, pod),) = (found for found in pods(manifests) if found[0].startswith("Deployment"))
    (container,) = pod["containers"]
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    config = {"OMS_CONFIG": str(tmp_path / "bridge.yaml")}
    with Bridge(tmp_path / "run", server=server, backend=variables["OMS_BACKEND"], settings=config) as bridge:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            answer = httpx.get(bridge.management + container[probe]["httpGet"]["path"])
            assert answer.status_code == 200, probe
        capabilities = f"{bridge.url}/v1/capabilities"
        inside = {"host": "shop-openmessaging-bridge.messaging.svc:8080", "x-oms-version": "1.0.0"}
        assert httpx.get(capabilities, headers=inside).status_code == 200
        assert httpx.get(capabilities, headers=inside | {"host": "elsewhere.example"}).status_code == 403


def test_the_secret_is_read_from_where_it_is_mounted(tmp_path: Path) -> None:
    """A wrong one stops the start, and does not appear in what it says."""
    ((_, pod),) = (found for found in pods(case("kafka-secured")) if found[0].startswith("Deployment"))
    (container,) = pod["containers"]
    (variable,) = container["env"]
    (volume,) = (v["secret"] for v in pod["volumes"] if v["name"] == "oms-bridge-backend")
    (mount,) = (m for m in container["volumeMounts"] if m["name"] == "oms-bridge-backend")
    assert volume["secretName"] == "shop-kafka"
    (item,) = volume["items"]
    assert variable == {"name": "OMS_BACKEND_FILE", "value": f"{mount['mountPath']}/{item['path']}"}
    (tmp_path / item["path"]).write_text("nowhere://user:s3cr3t@host")
    environment = {**os.environ, variable["name"]: str(tmp_path / item["path"])}
    said = subprocess.run([PROGRAM, "check"], env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert "nowhere://" in said.stderr
    assert "s3cr3t" not in said.stdout + said.stderr
