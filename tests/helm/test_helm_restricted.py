"""Every pod keeps every rule of the restricted profile, and every rule notices when it is broken."""

import copy
from pathlib import Path

import pytest

from tests.helm.charts import CASES, case, pods, render
from tests.helm.restricted import OURS, RULES, offences

pytestmark = pytest.mark.usefixtures("helm")

DRIVER = ("mirror-executors", "StatefulSet/shop-openmessaging-bridge-mirror")
"""It needs a token: test_helm_executors.py."""


def test_every_pod_is_restricted(subtests: pytest.Subtests) -> None:
    for name in CASES:
        with subtests.test(case=name):
            found = {maker: offences(pod) for maker, pod in pods(case(name)) if (name, maker) != DRIVER}
            assert found
            assert {maker: broken for maker, broken in found.items() if broken} == {}


def test_every_container_of_ours_keeps_our_own_rules(subtests: pytest.Subtests) -> None:
    for name in CASES:
        for maker, pod in pods(case(name)):
            with subtests.test(case=name, maker=maker):
                assert [rule.name for rule in OURS if not rule.holds(pod)] == []
                assert pod["enableServiceLinks"] is False


def test_the_example_is_restricted_with_the_sidecar_in_it(example: Path) -> None:
    found = dict(pods(render(chart=example)))
    assert set(found) == {"Deployment/shop-orders", "CronJob/shop-nightly"}
    for maker, pod in found.items():
        assert offences(pod) == [], maker
        alone = {"containers": pod["initContainers"]}
        assert [rule.name for rule in OURS if not rule.holds(alone)] == [], maker


def test_the_sidecar_is_restricted_in_a_pod_that_says_nothing(example: Path) -> None:
    for maker, pod in pods(render(chart=example)):
        alone = {"containers": pod["initContainers"], "automountServiceAccountToken": False}
        assert offences(alone) == [], maker


def test_every_rule_notices_a_pod_that_breaks_it(subtests: pytest.Subtests) -> None:
    made = dict(pods(case("everything")))
    assert {maker.partition("/")[0] for maker in made} == {"Deployment", "StatefulSet", "CronJob", "Pod"}
    for maker, pod in made.items():
        assert [rule.name for rule in (*RULES, *OURS) if not rule.holds(pod)] == [], maker
        for rule in (*RULES, *OURS):
            with subtests.test(rule=rule.name, maker=maker):
                broken = copy.deepcopy(pod)
                rule.broken(broken)
                assert not rule.holds(broken)


def test_every_rule_notices_init_containers_that_break_it(subtests: pytest.Subtests) -> None:
    (pod,) = (pod for maker, pod in pods(case("kafka")) if maker.startswith("Pod"))
    for rule in RULES:
        with subtests.test(rule=rule.name):
            broken = copy.deepcopy(pod)
            rule.broken(broken)
            broken["initContainers"], broken["containers"] = broken["containers"], pod["containers"]
            assert not rule.holds(broken)
