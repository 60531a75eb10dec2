"""What the manifests say is run: the gateway's container as a process, and what `helm test` does to it."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from tests.helm.charts import Manifest, case, containers, one, pods, render, values_of
from tests.launch import Bridge

pytestmark = pytest.mark.usefixtures("helm")

PROGRAM = Path(sys.executable).with_name("oms-bridge")


def run_test(bridge: Bridge, manifests: Sequence[Manifest], directory: Path) -> subprocess.CompletedProcess[str]:
    """Run the pod of `helm test` against this bridge, its output and errors in one text, as a log has them."""
    pod = one(manifests, "Pod")
    [container] = pod["spec"]["containers"]
    (directory / "messages").write_text(pod["metadata"]["annotations"]["openmessaging-bridge/messages"])
    script = container["args"][0].replace("/etc/messages/messages", str(directory / "messages"))
    script = script.replace("http://shop-openmessaging-bridge:8080", bridge.url)
    script = script.replace("--retry-ms=30000", "--retry-ms=1").replace("--wait-ms=20000", "--wait-ms=1000")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMS_")}
    environment["PATH"] = f"{PROGRAM.parent}:{environment['PATH']}"
    command = [sys.executable, *container["command"][1:], script]
    return subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def test_helm_test_produces_and_pulls(tmp_path: Path) -> None:
    with Bridge(tmp_path / "bridge") as bridge:
        said = run_test(bridge, case("memory"), tmp_path)
    assert said.returncode == 0, said.stdout
    assert len([line for line in said.stdout.splitlines() if line.startswith("stored ")]) == 32
    assert "helm test, message 0" in said.stdout


def test_helm_test_fails_and_says_why_where_no_bridge_is(tmp_path: Path) -> None:
    bridge = Bridge(tmp_path / "bridge")
    assert bridge.terminate() == 0
    said = run_test(bridge, case("memory"), tmp_path)
    assert said.returncode == 1
    assert "Traceback" not in said.stdout
    assert "refused" in said.stdout


def test_helm_test_fails_and_says_why_where_nothing_comes(tmp_path: Path) -> None:
    with Bridge(tmp_path / "bridge") as bridge:
        text = json.dumps(case("memory")).replace('\\"helm-test\\",\\"--group', '\\"elsewhere\\",\\"--group')
        said = run_test(bridge, json.loads(text), tmp_path)
    assert said.returncode == 1
    assert "exit status 3 (no message came)" in said.stdout


def test_a_test_has_one_container_whose_log_outlives_it() -> None:
    """`helm test --logs` reads the log of each hook's pod after the end, and of one container."""
    hooks = [m for m in case("memory") if m["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"]
    [pod] = hooks
    assert pod["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation"
    assert len(containers(pod["spec"])) == 1
    assert pod["spec"]["restartPolicy"] == "Never"  # a failure is reported at once


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
