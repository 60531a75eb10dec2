"""The rendered settings file is one that the bridge takes, and says what the values say."""

from pathlib import Path

import pytest

from bridge.settings import Settings, SettingsError, load
from tests.helm.charts import CASES, Manifest, case, containers, one, pods, render, values_of

pytestmark = pytest.mark.usefixtures("helm")

BACKEND = "amqp://user:secret@rabbit/shop"
SIGNING = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTwjU"
GATEWAYS = [name for name in CASES if values_of(name).get("gateway", {}).get("enabled", True)]


def mounted(pod: Manifest, container: Manifest, root: Path) -> None:
    """Put the files of a container's Secrets where its mounts have them, below `root`."""
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in container["volumeMounts"]:
        if (secret := volumes[mount["name"]].get("secret")) is not None:
            folder = root / mount["mountPath"].lstrip("/")
            folder.mkdir(parents=True, exist_ok=True)
            whole = [{"path": name} for name in ("tls.crt", "tls.key", "ca.crt")]
            for item in secret.get("items", whole):
                content = BACKEND if mount["name"] == "oms-bridge-backend" else SIGNING
                (folder / item["path"]).write_text(content)


def loaded(config: Manifest, pod: Manifest, root: Path) -> Settings:
    """Load a ConfigMap's file as the bridge in this pod does, whose file system is below `root`."""
    (serving,) = (c for c in containers(pod) if c["name"] == "oms-bridge")
    root.mkdir(exist_ok=True)
    mounted(pod, serving, root)
    assert serving["args"] == ["serve", "--config", "/etc/oms-bridge/bridge.yaml"]
    (volume,) = (v["configMap"]["name"] for v in pod["volumes"] if v["name"] == "oms-bridge-config")
    assert volume == config["metadata"]["name"]
    file = root / "bridge.yaml"
    text = config["data"]["bridge.yaml"].replace("/run/secrets", f"{root}/run/secrets")
    for name in ("rules", "tokens"):  # files of `mounts`
        (root / f"{name}.yaml").touch()
        text = text.replace(f"/etc/oms/{name}.yaml", str(root / f"{name}.yaml"))
    file.write_text(text)
    variables = {v["name"]: v["value"].replace("/run/secrets", f"{root}/run/secrets") for v in serving["env"]}
    return load(file, {}, variables)


def gateway(name: str, directory: Path) -> Settings:
    """Load the file of a set of values as its gateway does."""
    service = service_of(name)
    pod = one(case(name), "Deployment", service)["spec"]["template"]["spec"]
    return loaded(one(case(name), "ConfigMap", service), pod, directory)


def service_of(name: str) -> str:
    """Return the name of the Service, the Deployment and the ConfigMap of a set of values' gateway."""
    called = "a-name-that-is-much-longer-than-what" if name == "ipv6-and-names" else "shop-openmessaging-bridge"
    found: str = one(case(name), "Service", called)["metadata"]["name"]
    return found


def test_the_bridge_takes_the_file(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for name in GATEWAYS:
        with subtests.test(case=name):
            settings = gateway(name, tmp_path / name)
            assert settings.listen.port != settings.management.port
            assert f"{service_of(name)}.messaging.svc" in settings.http.hosts
            assert (settings.tls is not None) == ("tls" in name or name == "everything")
            assert (settings.auth is not None) == (name == "everything")


def test_what_the_values_say_is_what_the_bridge_reads(tmp_path: Path) -> None:
    settings = gateway("kafka-secured", tmp_path)
    assert settings.backend == BACKEND
    assert (settings.server, settings.drain, settings.log.level) == ("hypercorn", 60_500, "debug")
    assert settings.binding.strict
    limits = settings.limits
    assert (limits.body, limits.in_flight, limits.in_flight_bytes, limits.quota) == (1 << 20, 1_000_000, 1 << 30, 500)
    assert (settings.delivery.new_group, settings.delivery.lease) == ("latest", 60_000)
    assert settings.http.hosts[-1] == "bridge.shop.example"
    assert settings.http.origins == ("https://shop.example",)
    assert (str(settings.listen), str(settings.management)) == ("0.0.0.0:8080", "0.0.0.0:9090")


def test_callbacks_are_signed_with_the_secret(tmp_path: Path) -> None:
    callbacks = gateway("callbacks", tmp_path).callbacks
    assert callbacks.secrets == (SIGNING,)
    assert (callbacks.targets, callbacks.in_flight) == (("https://hooks.shop.example",), 8)


def test_client_certificates_are_demanded_where_asked(tmp_path: Path) -> None:
    (one_sided, mutual) = (gateway(name, tmp_path / name).tls for name in ("tls", "mutual-tls"))
    assert one_sided is not None
    assert one_sided.client_ca is None
    assert mutual is not None
    assert mutual.client_ca is not None


def test_ipv6_is_listened_to(tmp_path: Path) -> None:
    settings = gateway("ipv6-and-names", tmp_path)
    assert (str(settings.listen), str(settings.management)) == ("[::]:18080", "[::]:19090")


def test_names_of_the_service_are_served_and_others_are_not(tmp_path: Path) -> None:
    hosts = gateway("kafka", tmp_path).http.hosts
    service = one(case("kafka"), "Service")["metadata"]["name"]
    inside = f"{service}.messaging"
    assert hosts == (service, inside, f"{inside}.svc", f"{inside}.svc.cluster.local")


def test_the_sidecar_listens_on_loopback_and_is_probed_from_outside(example: Path, tmp_path: Path) -> None:
    manifests = render(chart=example)
    for _, pod in pods(manifests):
        settings = loaded(one(manifests, "ConfigMap"), pod, tmp_path)
        assert (str(settings.listen), str(settings.management)) == ("127.0.0.1:8080", "0.0.0.0:9090")
        assert settings.delivery.max_deliveries == 8


def test_settings_that_contradict_each_other_are_found_by_the_bridge(tmp_path: Path) -> None:
    manifests = render(values_of("kafka") | {"settings": {"limits": {"body": "8MiB", "in_flight_bytes": "4MiB"}}})
    pod = one(manifests, "Deployment")["spec"]["template"]["spec"]
    with pytest.raises(SettingsError, match="in_flight_bytes"):
        loaded(one(manifests, "ConfigMap", "shop-openmessaging-bridge"), pod, tmp_path)
