"""The rules of identities: what they allow, which one decides, and which have no effect."""

from typing import Any

import pytest

from bridge.engine.destination_names import dead_letter_of
from bridge.identity.principals import FileError, Revoked, StaticTokens, digest_of
from bridge.identity.rules import Operation, Resource, Rules
from bridge.identity.yaml_content import read_yaml


def rules(*entries: dict[str, Any]) -> Rules:
    return Rules.parse({"rules": list(entries)})


def allows(
    found: Rules, principal: str, operation: str, destination: str | None, group: str | None = None, *groups: str
) -> bool:
    return found.decide(principal, groups, Operation(operation), Resource(destination, group)).allowed


def test_nothing_is_allowed_unless_a_rule_says_so() -> None:
    found = rules({"principals": ["shop"], "allow": ["produce"], "destinations": ["orders", "audit-*"]})
    assert allows(found, "shop", "produce", "orders")
    assert allows(found, "shop", "produce", "audit-7")
    for principal, operation, destination in (
        ("shop", "produce", "orders2"),
        ("shop", "produce", "audit"),
        ("shop", "transact", "orders"),
        ("shop2", "produce", "orders"),
        ("sho", "produce", "orders"),
        ("", "produce", "orders"),
        ("shop", "produce", ""),
        ("shop", "produce", None),
    ):
        assert not allows(found, principal, operation, destination)
    assert not allows(rules(), "shop", "produce", "orders")
    assert not allows(Rules.parse(None), "shop", "produce", "orders")


def test_a_deny_wins_wherever_it_stands() -> None:
    allow = {"principals": ["*"], "allow": ["*"], "destinations": ["*"], "consumer_groups": ["*"]}
    deny = {"groups": ["interns"], "deny": ["produce"], "destinations": ["pay*"]}
    for found in (rules(allow, deny), rules(deny, allow)):
        assert not allows(found, "eve", "produce", "payments", None, "interns")
        assert allows(found, "eve", "produce", "orders", None, "interns")
        assert allows(found, "eve", "produce", "payments", None, "sales")
        decision = found.decide("eve", ("interns",), Operation.PRODUCE, Resource("payments"))
        assert decision.rule is not None
        assert not decision.rule.allows


def test_consumer_groups_count_where_there_are_some() -> None:
    found = rules(
        {
            "principals": ["billing"],
            "allow": ["produce", "consume", "callback", "admin"],
            "destinations": ["orders"],
            "consumer_groups": ["billing", "b-*"],
        }
    )
    for operation in ("consume", "callback", "admin"):
        assert allows(found, "billing", operation, "orders", "billing")
        assert allows(found, "billing", operation, "orders", "b-2")
        assert not allows(found, "billing", operation, "orders", "other")
    assert allows(found, "billing", "produce", "orders")
    assert not allows(found, "billing", "admin", "orders")  # with all its groups


def test_a_denied_group_keeps_its_destination_from_being_deleted() -> None:
    found = rules(
        {"principals": ["ops"], "allow": ["admin"], "destinations": ["*"]},
        {"principals": ["ops"], "deny": ["admin"], "destinations": ["orders"], "consumer_groups": ["billing"]},
    )
    assert not allows(found, "ops", "admin", "orders")
    assert not allows(found, "ops", "admin", "orders", "billing")
    assert allows(found, "ops", "admin", "orders", "audit")


def test_all_destinations_need_a_rule_for_all() -> None:
    one = {"principals": ["a"], "allow": ["inspect"], "destinations": ["o*"]}
    every = {"principals": ["a"], "allow": ["inspect"], "destinations": ["*"]}
    deny = {"principals": ["a"], "deny": ["inspect"], "destinations": ["secret"]}
    assert not allows(rules(one), "a", "inspect", None)
    assert allows(rules(every), "a", "inspect", None)
    assert not allows(rules(every, deny), "a", "inspect", None)


@pytest.mark.parametrize("source", ["orders", "o" * 249, "o" * 240])
def test_dead_letters_are_of_those_who_may_use_the_source(source: str) -> None:
    both = {"allow": ["consume"], "consumer_groups": ["*"]}
    literal = rules({"principals": ["a"], "destinations": [source], **both})
    assert allows(literal, "a", "consume", dead_letter_of(source), "g")
    assert allows(
        rules({"principals": ["a"], "destinations": ["o*"], **both}), "a", "consume", dead_letter_of(source), "g"
    )
    denied = rules(
        {"principals": ["a"], "destinations": ["*"], **both},
        {"principals": ["a"], "destinations": [source], "deny": ["consume"]},
    )
    assert not allows(denied, "a", "consume", dead_letter_of(source), "g")
    assert not allows(
        rules({"principals": ["a"], "destinations": [f"{source}.dlq"], **both}), "a", "consume", source, "g"
    )


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "one of allow and deny"),
        (
            {"principals": ["a"], "allow": ["produce"], "deny": ["consume"], "destinations": ["o"]},
            "one of allow and deny",
        ),
        ({"principals": ["a"], "allow": ["read"], "destinations": ["o"]}, "unknown operation 'read'"),
        ({"allow": ["produce"], "destinations": ["o"]}, "principals or groups is missing"),
        ({"principals": ["a"], "allow": ["produce"]}, "destinations is missing"),
        ({"principals": ["a"], "allow": ["consume"], "destinations": ["o"]}, "consumer_groups is missing"),
        ({"principals": ["a"], "allow": ["produce"], "destinations": ["o*x"]}, "only allowed at the end"),
        ({"principals": ["a"], "allow": ["produce"], "destination": ["o"]}, "unknown name 'destination'"),
        ({"principals": [], "allow": [7], "destinations": ["o"]}, "a list of names"),
        ("produce", "names and values are expected"),
    ],
)
def test_a_rule_that_is_not_clear_is_refused(entry: Any, said: str) -> None:  # noqa: ANN401 - as YAML has it
    with pytest.raises(FileError, match=said):
        Rules.parse({"rules": [entry]})


def test_rules_without_effect_are_named() -> None:
    found = rules(
        {"principals": ["a"], "allow": ["produce"], "destinations": ["o*"]},
        {"principals": ["a"], "allow": ["produce"], "destinations": ["orders"]},
        {"principals": ["*"], "deny": ["produce"], "destinations": ["pay*"]},
        {"principals": ["b"], "allow": ["produce"], "destinations": ["payments"]},
        {"principals": ["b"], "allow": ["consume"], "destinations": ["x.dlq"], "consumer_groups": ["*"]},
    )
    warnings = list(found.warnings())
    assert [each.partition(":")[0] for each in warnings] == ["rule 2", "rule 4", "rule 5"]
    assert "rule 1" in warnings[0]
    assert "rule 3" in warnings[1]
    assert "dead letters" in warnings[2]
    same = rules(*[{"principals": ["a"], "allow": ["produce"], "destinations": ["o"]}] * 2)
    assert [each.partition(":")[0] for each in same.warnings()] == ["rule 2"]


def test_all_rules_can_be_explained_the_deciding_one_first() -> None:
    found = rules(
        {"principals": ["a"], "allow": ["produce"], "destinations": ["*"]},
        {"groups": ["g"], "deny": ["produce"], "destinations": ["o"]},
        {"principals": ["b"], "allow": ["produce"], "destinations": ["*"]},
    )
    assert [rule.number for rule in found.explain("a", ("g",), Operation.PRODUCE, Resource("o"))] == [2, 1]


def test_a_file_of_tokens_has_hashes_only() -> None:
    content = read_yaml(
        b"tokens:\n- principal: on\n  groups: [sales]\n  expires: 2027-01-31T00:00:00Z\n"
        b"  hash: %s\n" % digest_of("t").encode()
    )
    found = StaticTokens.parse(content).find("t")
    assert found is not None
    assert (found.principal, found.groups, found.expires) == ("on", ("sales",), 1801353600000)
    assert StaticTokens.parse(content).find(digest_of("t")) is None
    for broken, said in (
        ("tokens:\n- principal: a\n  hash: t\n", "hash is"),
        (f"tokens:\n- principal: 'k8s:a'\n  hash: {digest_of('t')}\n", "principal is"),
        (f"tokens:\n- principal: a\n  hash: {digest_of('t')}\n  expires: soon\n", "expires is"),
        (
            f"tokens:\n- {{principal: a, hash: {digest_of('t')}}}\n- {{principal: b, hash: {digest_of('t')}}}\n",
            "second",
        ),
        ("tokens: 7\n", "tokens is a list"),
        ("token: []\n", "unknown name"),
        ("a: {", "not YAML"),
        ("tokens: []\ntokens: []\n", "second time"),
    ):
        with pytest.raises(FileError, match=said):
            StaticTokens.parse(read_yaml(broken.encode()))


def test_what_is_revoked() -> None:
    revoked = Revoked.parse(read_yaml(b"jti: [one]\nprincipals: [shop]\n"))
    known = StaticTokens.parse({"tokens": [{"principal": "shop", "hash": digest_of("t")}]}).find("t")
    assert known is not None
    assert revoked.has(known)
    assert revoked.has(known._replace(principal="a", jti="one"))
    assert not revoked.has(known._replace(principal="a", jti="two"))
    assert not revoked.has(known._replace(principal="a"))
