"""What may be reached: the brokers and the DNS, and nothing that was not named."""

from typing import Any

import pytest

from tests.helm.charts import CASES, Manifest, case, one, values_of

pytestmark = pytest.mark.usefixtures("helm")

DNS = [
    {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
]


def peer(component: str) -> dict[str, Any]:
    """Return pods of the release."""
    names = {"name": "openmessaging-bridge", "instance": "shop", "component": component}
    return {"podSelector": {"matchLabels": {f"app.kubernetes.io/{key}": value for key, value in names.items()}}}


BLOCKS = ([peer("mirror-executor")], [7079])
INSIDE: dict[str, list[tuple[Any, list[int]]]] = {
    "mirror": [([{"ipBlock": {"cidr": "10.96.0.1/32"}}], [443, 6443]), BLOCKS],
    "mirror-executor": [([peer("mirror")], [7078, 7079]), BLOCKS],
    "mirror-job": [],
}
"""What a mirror with executors reaches beside its brokers and its storage."""


def values(name: str) -> dict[str, Any]:
    found: dict[str, Any] = values_of(name).get("networkPolicy", {})
    return found


def policies(name: str) -> list[Manifest]:
    return [m for m in case(name) if m["kind"] == "NetworkPolicy"]


def reached(policy: Manifest) -> list[tuple[Any, list[int]]]:
    """Return the peers and ports that a policy allows; DNS must be the first."""
    first, *others = policy["spec"]["egress"]
    assert first == {"to": DNS, "ports": [{"protocol": p, "port": 53} for p in ("UDP", "TCP")]}
    assert all(port["protocol"] == "TCP" for rule in others for port in rule["ports"])
    return [(rule["to"], [port["port"] for port in rule["ports"]]) for rule in others]


def test_brokers_and_dns_are_all_that_is_reached(subtests: pytest.Subtests) -> None:
    for name in CASES:
        if not values(name).get("enabled", True):
            continue
        with subtests.test(case=name):
            assert policies(name)
        for policy in policies(name):
            with subtests.test(case=name, policy=policy["metadata"]["name"]):
                assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
                component = policy["metadata"]["labels"]["app.kubernetes.io/component"]
                more = values(name).get("others" if component == "gateway" else "storage", [])
                expected = [(rule["to"], rule["ports"]) for rule in (*values(name).get("brokers", ()), *more)]
                found = reached(policy)
                assert found[: len(expected)] == expected
                assert found[len(expected) :] == (INSIDE[component] if name == "mirror-executors" else [])
                assert all(to for to, _ in reached(policy)), "an empty list would be everybody"


def test_no_policy_where_none_is_wanted() -> None:
    assert policies("mirror-claim") == []


def test_the_data_port_is_for_clients_and_for_helm_test() -> None:
    policy = one(case("everything"), "NetworkPolicy", "shop-openmessaging-bridge")
    data, management = policy["spec"]["ingress"]
    tester = one(case("everything"), "Pod")["metadata"]["labels"]
    test, client = data["from"]
    assert test["podSelector"]["matchLabels"].items() <= tester.items()
    assert client == {"podSelector": {"matchLabels": {"uses": "bridge"}}}
    assert data["ports"] == [{"protocol": "TCP", "port": "oms-data"}]
    assert management["from"] == [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]
    assert management["ports"] == [{"protocol": "TCP", "port": "oms-management"}]


def test_clients_outside_the_cluster_keep_the_address_that_the_policy_names() -> None:
    assert one(case("rabbitmq"), "Service")["spec"]["externalTrafficPolicy"] == "Local"
    [rule] = one(case("rabbitmq"), "NetworkPolicy")["spec"]["ingress"]
    assert {"ipBlock": {"cidr": "198.51.100.0/24"}} in rule["from"]
    assert "externalTrafficPolicy" not in one(case("kafka"), "Service")["spec"]


def test_nobody_reaches_the_management_port_unless_named() -> None:
    (policy,) = policies("kafka")
    (rule,) = policy["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": "oms-data"}]


def test_executors_and_their_driver_reach_each_other() -> None:
    driver, executor = (
        one(case("mirror-executors"), "NetworkPolicy", ending)["spec"]["ingress"]
        for ending in ("-mirror", "-mirror-executor")
    )
    scraped, used = driver
    assert scraped["from"] == values("mirror-executors")["scrapers"]
    assert used["from"] == [peer("mirror-executor")]
    assert [port["port"] for port in used["ports"]] == ["spark-driver", "spark-blocks"]
    [rule] = executor
    assert rule["from"] == [peer("mirror"), peer("mirror-executor")]
    assert [port["port"] for port in rule["ports"]] == [7079]


def test_nobody_reaches_a_mirror_but_scrapers() -> None:
    mirror = one(case("mirror-run"), "NetworkPolicy", "-mirror")
    (rule,) = mirror["spec"]["ingress"]
    assert rule["from"] == values("mirror-run")["scrapers"]
    assert "ingress" not in one(case("mirror-run"), "NetworkPolicy", "-mirror-job")["spec"]
