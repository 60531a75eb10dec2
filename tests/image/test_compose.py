"""docker-compose.yml, read as compose reads it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.image.building import ROOT
from tests.image.docker import Docker

pytestmark = pytest.mark.extended  # compose may have to be downloaded first

FILE = f"--file={ROOT / 'docker-compose.yml'}"


@pytest.fixture(scope="module")
def services(compose: Docker) -> dict[str, Any]:
    text = compose("compose", FILE, "--profile=faults", "config", "--format=json")
    found: dict[str, Any] = json.loads(text)["services"]
    return found


def test_it_is_clean(compose: Docker, subtests: pytest.Subtests) -> None:
    for profile in ([], ["--profile=faults"]):
        with subtests.test(msg=str(profile)):
            done = compose.run("compose", FILE, *profile, "config", "--quiet")
            assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_what_starts_without_a_profile(services: dict[str, Any]) -> None:
    started = {name for name, service in services.items() if "profiles" not in service}
    assert started == {"kafka", "rabbitmq", "bridge-kafka", "bridge-rabbitmq", "mirror", "producer", "consumer"}


def test_the_start_is_ordered_by_health(services: dict[str, Any]) -> None:
    needs = {name: service.get("depends_on", {}) for name, service in services.items()}
    conditions = {(name, needed): how["condition"] for name, of in needs.items() for needed, how in of.items()}
    assert conditions.pop(("bridge-faults", "toxiproxy")) == "service_started"
    assert set(conditions.values()) == {"service_healthy"}
    assert [name for name in needs if not needs[name] and not name.startswith(("kafka", "rabbitmq"))] == []
    for _, needed in conditions:
        ours = services[needed]["image"].startswith("openmessaging-bridge")
        assert "healthcheck" in services[needed] or ours, f"{needed} has no health check"


def test_our_containers_have_no_rights(services: dict[str, Any]) -> None:
    ours = [service for service in services.values() if service["image"].startswith("openmessaging-bridge")]
    assert ours
    for service in ours:
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_no_port_is_open_to_the_network(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}
    assert len({port["published"] for port in ports}) == len(ports)


def test_every_broker_of_the_faults_is_reached_through_toxiproxy(services: dict[str, Any]) -> None:
    proxies = json.loads((ROOT / "deploy/toxiproxy/proxies.json").read_text("utf-8"))
    upstream = {proxy["listen"].replace("0.0.0.0", "toxiproxy"): proxy["upstream"] for proxy in proxies}
    advertised = {}
    for name in ("kafka-1", "kafka-2", "kafka-3"):
        settings = services[name]["environment"]
        listeners = dict(each.split("://") for each in settings["KAFKA_LISTENERS"].split(","))
        shown = dict(each.split("://") for each in settings["KAFKA_ADVERTISED_LISTENERS"].split(","))
        advertised[shown["PROXIED"]] = name + listeners["PROXIED"]
    assert upstream == advertised
    backend = services["bridge-faults"]["environment"]["OMS_BACKEND"]
    assert backend == f"kafka://{','.join(sorted(advertised))}?replication=3"


def test_what_is_mounted_is_there(services: dict[str, Any]) -> None:
    mounts = [mount for service in services.values() for mount in service.get("volumes", [])]
    sources = [Path(mount["source"]) for mount in mounts if mount["type"] == "bind"]
    assert sources
    assert [source for source in sources if not source.exists()] == []
