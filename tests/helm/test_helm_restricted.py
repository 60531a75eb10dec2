"""Every pod keeps every rule of the restricted profile, and every rule notices when it is broken."""

import copy
from pathlib import Path

import pytest

from tests.helm.charts import CASES, case, pods, render
from tests.helm.restricted import OURS, RULES, Rule, offences


@pytest.mark.parametrize("name", CASES)
def test_every_pod_is_restricted(name: str) -> None:
    found = {maker: offences(pod) for maker, pod in pods(case(name))}
    assert not any(found.values()), found


@pytest.mark.parametrize("name", CASES)
def test_every_container_of_ours_keeps_the_rules_of_the_house(name: str) -> None:
    for maker, pod in pods(case(name)):
        assert [rule.name for rule in OURS if not rule.holds(pod)] == [], maker
        assert pod["enableServiceLinks"] is False, maker


def test_the_example_is_restricted_with_the_sidecar_in_it(example: Path) -> None:
    found = dict(pods(render(example)))
    assert set(found) == {"Deployment/shop-orders", "CronJob/shop-nightly"}
    for maker, pod in found.items():
        assert offences(pod) == [], maker
        alone = {"containers": pod["initContainers"]}
        assert [rule.name for rule in OURS if not rule.holds(alone)] == [], maker


def test_the_sidecar_is_restricted_in_a_pod_that_says_nothing(example: Path) -> None:
    for _, pod in pods(render(example)):
        alone = {"containers": pod["initContainers"], "automountServiceAccountToken": False}
        assert offences(alone) == []


@pytest.mark.parametrize("rule", [*RULES, *OURS], ids=lambda rule: rule.name)
@pytest.mark.parametrize("kind", ["Deployment", "CronJob", "Pod"])
def test_every_rule_notices(rule: Rule, kind: str) -> None:
    for maker, pod in pods(case("everything")):
        if maker.startswith(kind):
            broken = copy.deepcopy(pod)
            rule.broken(broken)
            assert not rule.holds(broken), maker
            assert [r.name for r in (*RULES, *OURS) if not r.holds(pod)] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_notices_in_init_containers(rule: Rule) -> None:
    (broken,) = (copy.deepcopy(pod) for maker, pod in pods(case("kafka")) if maker.startswith("Pod"))
    rule.broken(broken)
    broken["initContainers"], broken["containers"] = broken["containers"], broken["initContainers"]
    assert not rule.holds(broken)
