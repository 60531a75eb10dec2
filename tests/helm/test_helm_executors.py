"""`mirror.executors`: what the driver needs to ask Kubernetes for executors, and the pod that it asks for."""

from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from tests.helm.charts import NAMESPACE, Manifest, case, one, pods, render, values_of
from tests.helm.program import KUBERNETES
from tests.helm.restricted import RULES, offences

pytestmark = pytest.mark.usefixtures("helm")


def driver() -> tuple[Manifest, dict[str, str]]:
    """Return the driver's pod and the settings of Spark in its arguments."""
    pod = one(case("mirror-executors"), "StatefulSet")["spec"]["template"]
    args = pod["spec"]["containers"][0]["args"]
    return pod, dict(arg.removeprefix("--conf=").split("=", 1) for arg in args if arg.startswith("--conf="))


def executor(**mirror: Any) -> Manifest:  # noqa: ANN401 - values of the chart
    """Return the pod that Spark begins with."""
    values = values_of("mirror-executors")
    values["mirror"] |= mirror
    found: Manifest = yaml.safe_load(one(render(values), "ConfigMap")["data"]["executor.yaml"])
    return found


def test_executors_and_their_size_are_those_of_the_values() -> None:
    _, conf = driver()
    found = {name: conf[f"spark.executor.{name}"] for name in ("instances", "cores", "memory")}
    assert found == {"instances": "2", "cores": "2", "memory": "1500m"}
    assert conf["spark.driver.memory"] == "2g"
    assert conf["spark.master"] == "k8s://https://kubernetes.default.svc"
    assert conf["spark.kubernetes.namespace"] == NAMESPACE


def test_executors_run_the_image_of_the_mirror() -> None:
    pod, conf = driver()
    [container] = pod["spec"]["containers"]
    assert conf["spark.kubernetes.container.image"] == container["image"]
    assert conf["spark.kubernetes.container.image.pullPolicy"] == container["imagePullPolicy"]
    [started] = executor()["spec"]["containers"]
    assert started["args"] == ["mirror"]  # Spark adds `executor`
    assert conf["spark.kubernetes.executor.podTemplateContainerName"] == started["name"]


def test_executors_find_their_driver() -> None:
    pod, conf = driver()
    service = one(case("mirror-executors"), "Service", "-driver")
    assert conf["spark.driver.host"] == f"{service['metadata']['name']}.{NAMESPACE}.svc"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert not service["spec"]["selector"].items() <= executor()["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
    for port in service["spec"]["ports"]:
        assert port["port"] == ports[port["targetPort"]]
    assert conf["spark.driver.port"] == str(ports["spark-driver"])
    assert conf["spark.blockManager.port"] == str(ports["spark-blocks"])


def test_the_driver_s_pod_owns_the_executors() -> None:
    _, conf = driver()
    name = one(case("mirror-executors"), "StatefulSet")["metadata"]["name"]
    assert conf["spark.kubernetes.driver.pod.name"] == f"{name}-0"


def test_the_driver_is_ready_before_its_executors() -> None:
    """Spark waits for that before it asks for them, and logs an error if it does not come."""
    pod, conf = driver()
    assert pod["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/livez"
    assert conf["spark.kubernetes.allocation.driver.readinessTimeout"] == "60s"
    [alone] = one(case("mirror-run"), "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert alone["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_connections_of_executors_are_authenticated_and_encrypted() -> None:
    _, conf = driver()
    assert (conf["spark.authenticate"], conf["spark.network.crypto.enabled"]) == ("true", "true")


@pytest.mark.parametrize("given", ["", "lake"])
def test_the_driver_s_account_may_use_pods_of_its_namespace(given: str) -> None:
    values = values_of("mirror-executors")
    values["mirror"]["serviceAccountName"] = given
    made = render(values)
    account = one(made, "StatefulSet")["spec"]["template"]["spec"]["serviceAccountName"]
    assert account == given or [one(made, "ServiceAccount")["metadata"]["name"]] == [account]
    assert bool(given) is ("ServiceAccount" not in {manifest["kind"] for manifest in made})
    binding = one(made, "RoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
    role = one(made, "Role")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    [rule] = role["rules"]
    assert rule["resources"] == ["pods", "configmaps", "services", "persistentvolumeclaims"]


def test_only_the_driver_has_a_token() -> None:
    """All else of the restricted profile holds; resources are Spark's to add."""
    tokens = {"no token of a service account"}
    for maker, pod in pods(case("mirror-executors")):
        assert set(offences(pod)) == (tokens if maker.startswith("StatefulSet") else set()), maker
    assert [rule.name for rule in RULES if not rule.holds(executor()["spec"])] == []


def test_the_driver_reads_the_template_that_the_chart_makes() -> None:
    pod, conf = driver()
    [mount] = [m for m in pod["spec"]["containers"][0]["volumeMounts"] if m["name"] == "oms-bridge-executor"]
    [volume] = [v for v in pod["spec"]["volumes"] if v["name"] == "oms-bridge-executor"]
    config = one(case("mirror-executors"), "ConfigMap")
    assert volume["configMap"]["name"] == config["metadata"]["name"]
    [key] = config["data"]
    assert conf["spark.kubernetes.executor.podTemplateFile"] == f"{mount['mountPath']}/{key}"


def test_another_template_replaces_the_driver() -> None:
    def digest(label: str) -> object:
        values = values_of("mirror-executors")
        values["mirror"]["tolerations"] = [{"key": label}]
        return one(render(values), "StatefulSet")["spec"]["template"]["metadata"]["annotations"]

    assert digest("a") == digest("a") != digest("b")


def test_executors_have_files_and_keys_but_not_the_backend_s_secret() -> None:
    pod = executor(serviceAccountName="lake", priorityClassName="high")
    assert {volume["name"] for volume in pod["spec"]["volumes"]} == {"spark-local-dir-1", "oms-bridge-kafka-ca"}
    [container] = pod["spec"]["containers"]
    assert [mount["mountPath"] for mount in container["volumeMounts"]][1:] == ["/etc/kafka-ca"]  # after scratch space
    assert [v["name"] for v in container["env"]] == ["HOME", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
    spec = pod["spec"]
    assert (spec["serviceAccountName"], spec["priorityClassName"]) == ("lake", "high")
    assert (spec["nodeSelector"], pod["metadata"]["labels"]["team"]) == ({"kubernetes.io/arch": "amd64"}, "shop")


@pytest.mark.parametrize("version", [KUBERNETES[0], KUBERNETES[-1]])
def test_clusters_take_the_pod_of_an_executor(version: str) -> None:
    pod = executor(tolerations=[{"key": "shop", "operator": "Exists"}], podAnnotations={"note": "yes"})
    pod["metadata"]["name"] = "executor"
    kubernetes_validate.validate(pod, version, strict=True)


def test_a_mirror_without_executors_has_none_of_it() -> None:
    for name in ("mirror-run", "mirror-once"):
        assert {m["kind"] for m in case(name)} & {"ServiceAccount", "Role", "RoleBinding"} == set()
        assert "k8s://" not in str(case(name))
    assert "k8s://" in str(case("mirror-executors"))
