"""The rules: which principals and groups may do what, with which destinations and consumer groups. Pure.

A deny wins over every allow, and nothing is allowed unless a rule says so.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple, Self

from adapters.base import DEAD_LETTER_SUFFIX
from bridge.engine.destination_names import NAME_MAX, dead_letter_of
from bridge.identity.principals import FileError, entries, mapping, names

ANY: Final = "*"
COMPARED_MAX: Final = 1000
"""Rules that are compared with each other, which takes half a second."""
_DECISIONS_KEPT: Final = 8192
_PRINCIPALS_KEPT: Final = 1024


class Operation(StrEnum):
    """What a rule allows or denies."""

    PRODUCE = "produce"
    CONSUME = "consume"
    CALLBACK = "callback"
    TRANSACT = "transact"
    INSPECT = "inspect"
    ADMIN = "admin"


_OF_GROUPS: Final = frozenset((Operation.CONSUME, Operation.CALLBACK, Operation.ADMIN))
"""The operations that name a consumer group; `ADMIN` also concerns whole destinations."""


class Patterns(NamedTuple):
    """Names and prefixes, such as `orders` and `orders-*`."""

    literals: frozenset[str]
    prefixes: tuple[str, ...]

    @classmethod
    def parse(cls, texts: Sequence[str], place: str) -> Self:
        """Read patterns. Raises `FileError` for a `*` that is not at the end."""
        for text in texts:
            if ANY in text[:-1]:
                raise FileError(f"{place}: `*` is only allowed at the end of a name")
        return cls(
            frozenset(text for text in texts if not text.endswith(ANY)),
            tuple(text[:-1] for text in texts if text.endswith(ANY)),
        )

    def match(self, name: str) -> bool:
        """Return whether one of the patterns is the name or the beginning of it."""
        return name in self.literals or name.startswith(self.prefixes)

    def cover(self, other: "Patterns") -> bool:
        """Return whether these match everything that the others match."""
        return all(map(self.match, other.literals)) and all(each.startswith(self.prefixes) for each in other.prefixes)

    @property
    def has_any(self) -> bool:
        """Whether these match every name."""
        return "" in self.prefixes


class Resource(NamedTuple):
    """What an operation concerns. Destination None: the whole bridge, such as its metrics."""

    destination: str | None
    group: str | None = None

    def __str__(self) -> str:
        if self.destination is None:
            return "all destinations"
        shown = self.destination[:NAME_MAX]  # longer ones are no names
        return shown if self.group is None else f"{shown}, group {self.group}"


class Rule(NamedTuple):
    """One rule of the file."""

    number: int
    """Its place in the file, counted from 1."""
    allows: bool
    operations: frozenset[Operation]
    principals: Patterns
    groups: Patterns
    """Of principals."""
    destinations: Patterns
    consumer_groups: Patterns | None
    """None: every group, and what has none."""

    def concerns(self, principal: str, groups: Sequence[str]) -> bool:
        """Return whether the rule is about a principal that has these groups."""
        return self.principals.match(principal) or any(map(self.groups.match, groups))

    def covers(self, operation: Operation, resource: Resource) -> bool:
        """Return whether the rule is about this operation with this resource."""
        return operation in self.operations and self._has_destination(resource) and self._has_group(operation, resource)

    def _has_destination(self, resource: Resource) -> bool:
        destination = resource.destination
        if destination is None:  # all: a deny of one of them denies all
            return self.destinations.has_any or not self.allows
        if not destination.endswith(DEAD_LETTER_SUFFIX):
            return self.destinations.match(destination)
        source = destination
        while source.endswith(DEAD_LETTER_SUFFIX):
            source = source.removesuffix(DEAD_LETTER_SUFFIX)
        # Dead letters are for those who may use the source. The name of a long one is cut and has a hash.
        cut = any(dead_letter_of(literal) == destination for literal in self.destinations.literals)
        return cut or self.destinations.match(source)

    def _has_group(self, operation: Operation, resource: Resource) -> bool:
        if self.consumer_groups is None or operation not in _OF_GROUPS:
            return True
        if resource.group is None:  # a whole destination, with all its groups
            return self.consumer_groups.has_any or not self.allows
        return self.consumer_groups.match(resource.group)

    def includes(self, other: "Rule") -> bool:
        """Return whether this rule holds wherever the other one does."""
        of_groups = self.consumer_groups
        return (
            self.operations >= other.operations
            and (
                self.principals.has_any or (self.principals.cover(other.principals) and self.groups.cover(other.groups))
            )
            and self.destinations.cover(other.destinations)
            and (of_groups is None or (other.consumer_groups is not None and of_groups.cover(other.consumer_groups)))
        )

    def __str__(self) -> str:
        said = "allow" if self.allows else "deny"
        parts = [f"rule {self.number}: {said} {', '.join(sorted(self.operations))}"]
        who = [*_shown(self.principals), *(f"group {each}" for each in _shown(self.groups))]
        parts.append(f"to {', '.join(who)} on {', '.join(_shown(self.destinations))}")
        if self.consumer_groups is not None:
            parts.append(f"in consumer groups {', '.join(_shown(self.consumer_groups))}")
        return " ".join(parts)


class Decision(NamedTuple):
    """Whether something is allowed, and the rule that decides; None: no rule says anything."""

    allowed: bool
    rule: Rule | None


class Rules:
    """All rules of a file. Decisions are remembered."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self.decide = lru_cache(maxsize=_DECISIONS_KEPT)(self._decide)
        self._concerning = lru_cache(maxsize=_PRINCIPALS_KEPT)(self._find_concerning)

    @classmethod
    def parse(cls, content: object) -> Self:
        """Read the content of the file. Raises `FileError`."""
        return cls([_rule(number, entry) for number, entry in enumerate(entries(content, "rules"), 1)])

    def allow_somewhere(self, principal: str, groups: Sequence[str], operation: Operation) -> bool:
        """Return whether a rule allows the operation on any destination."""
        concerning = self._concerning(principal, tuple(groups))
        return any(rule.allows and operation in rule.operations for rule in concerning)

    def explain(self, principal: str, groups: Sequence[str], operation: Operation, resource: Resource) -> list[Rule]:
        """Return all rules that concern the principal with this operation and resource, the deciding one first."""
        concerning = self._concerning(principal, tuple(groups))
        return sorted((rule for rule in concerning if rule.covers(operation, resource)), key=lambda rule: rule.allows)

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each rule that has no effect."""
        if len(self.rules) > COMPARED_MAX:
            yield f"there are more than {COMPARED_MAX} rules: they are not searched for such without effect"
            return
        for rule in self.rules:
            for literal in sorted(rule.destinations.literals):
                if literal.endswith(DEAD_LETTER_SUFFIX):
                    yield (
                        f"{rule}: {literal} is never reached: dead letters are for those who may consume the source;"
                        f" name the source"
                    )
            for other in self.rules:
                if other is rule or not other.includes(rule):
                    continue
                if not other.allows and rule.allows:
                    yield f"{rule}: it has no effect, as {other} denies the same"
                    break
                if other.allows == rule.allows and (other.number < rule.number or not rule.includes(other)):
                    yield f"{rule}: it has no effect, as {other} says the same"
                    break

    def _find_concerning(self, principal: str, groups: tuple[str, ...]) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.rules if rule.concerns(principal, groups))

    def _decide(self, principal: str, groups: tuple[str, ...], operation: Operation, resource: Resource) -> Decision:
        found = self.explain(principal, groups, operation, resource)
        return Decision(found[0].allows, found[0]) if found else Decision(allowed=False, rule=None)


def _rule(number: int, entry: object) -> Rule:
    place = f"rule {number}"
    known = mapping(entry, place, {"principals", "groups", "allow", "deny", "destinations", "consumer_groups"})
    if ("allow" in known) == ("deny" in known):
        raise FileError(f"{place}: one of allow and deny is expected")
    allows = "allow" in known
    said = names(known["allow" if allows else "deny"], f"{place}: {'allow' if allows else 'deny'}")
    for each in said:
        if each not in {*Operation, ANY}:
            raise FileError(f"{place}: unknown operation {each[:80]!a}; {', '.join(Operation)} are allowed")
    operations = frozenset(Operation) if ANY in said else frozenset(map(Operation, said))
    if "principals" not in known and "groups" not in known:
        raise FileError(f"{place}: principals or groups is missing")
    if "destinations" not in known:
        raise FileError(f"{place}: destinations is missing; `*` are all")
    if allows and "consumer_groups" not in known and operations & {Operation.CONSUME, Operation.CALLBACK}:
        raise FileError(f"{place}: consumer_groups is missing, for consume and callback; `*` are all")

    def patterns(name: str) -> Patterns:
        return Patterns.parse(names(known.get(name, []), f"{place}: {name}"), f"{place}: {name}")

    of_groups = patterns("consumer_groups") if "consumer_groups" in known else None
    return Rule(
        number, allows, operations, patterns("principals"), patterns("groups"), patterns("destinations"), of_groups
    )


def _shown(patterns: Patterns) -> list[str]:
    return [*sorted(patterns.literals), *(prefix + ANY for prefix in patterns.prefixes)]
