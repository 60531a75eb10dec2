"""The settings of the engine, the counters that metrics read, and how a backend honours each field. Pure."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from types import NoneType
from typing import Final, Generic, NamedTuple, TypeVar

from adapters.base import Support
from bridge.errors import FieldUnsupported
from bridge.message import FIELDS, PRIORITIES, Field, Message

_IGNORED: Final = "ignored"
_EXACTLY_ONCE: Final = 2
_FEATURE_FIELDS: Final = tuple(f for f in FIELDS if f.is_feature)
_feature_values: Final = itemgetter(*(Message._fields.index(f.attribute) for f in _FEATURE_FIELDS))
COMBINATIONS_KEPT: Final = 1024
"""Combinations of fields whose `Applied` is remembered: all that occur, unless a client tries every one."""


class Applied(dict[str, str]):
    """How each field that a message carried is honoured: field name -> `native`, `emulated` or `ignored`."""

    __slots__ = ("text",)

    def __init__(self, fields: Iterable[tuple[str, str]]) -> None:
        super().__init__(fields)
        self.text = ",".join(f"{name}={support}" for name, support in self.items())
        """The value of `x-oms-applied`."""


class FieldSupport:
    """What one backend does with each field."""

    def __init__(self, fields: Mapping[str, Support]) -> None:
        self._support = {
            f.name: _IGNORED if fields[f.name] is Support.UNSUPPORTED else fields[f.name].value for f in _FEATURE_FIELDS
        }
        self._applied: dict[tuple[type, ...], Applied] = {}
        """By the types of the feature fields: `NoneType` if a field is not set."""

    def applied(self, message: Message) -> Applied:
        """Return how each field that the client set is honoured; without a meaning or support it is ignored."""
        types = tuple(map(type, _feature_values(message)))
        applied = self._applied.get(types)
        if applied is None:
            fields = [field.name for field, kind in zip(_FEATURE_FIELDS, types, strict=True) if kind is not NoneType]
            applied = Applied((name, self._support[name]) for name in fields)
            if len(self._applied) < COMBINATIONS_KEPT:
                self._applied[types] = applied
        if message.qos == _EXACTLY_ONCE:
            applied = Applied({**applied, "qos": _IGNORED}.items())
        if message.priority is not None and message.priority not in PRIORITIES:
            applied = Applied({**applied, "priority": _IGNORED}.items())
        return applied

    def check_required(self, require: Sequence[Field], applied: Applied) -> None:
        """Raise `FieldUnsupported` if a field that must be honoured is ignored."""
        for field in require:
            if applied.get(field.name, self._support[field.name]) == _IGNORED:
                raise FieldUnsupported(f"x-oms-require: {field.name} cannot be honoured here; nothing was stored.")


class EngineOptions(NamedTuple):
    """The engine's share of the settings; `docs/configuration.md` explains each. Times in ms, sizes in bytes."""

    store_host: str
    """The value of storeHost: host and port of this bridge."""
    strict: bool = False
    in_flight: int = 10_000
    in_flight_bytes: int = 64 << 20
    quota: int | None = None
    """Messages per second and destination. None: no quota."""
    produce_timeout: int = 30_000
    max_deliveries: int = 16
    prefetch: int = 1024
    """Messages in the prefetch buffer of one group, leased ones included."""
    prefetch_bytes: int = 64 << 20
    waiting_pulls: int = 20_000
    destinations: int = 1000
    """Destinations that clients may have the bridge create."""
    groups: int = 1000
    """Groups that clients may use."""
    delayed: int = 1_000_000
    """Delayed messages that are not due yet."""
    delayed_bytes: int = 1 << 30
    """Of their bodies."""
    transactions: int = 1000
    """Open transactions that clients began at this bridge."""
    transaction_messages: int = 1000
    """Messages of one transaction."""
    transaction_bytes: int = 16 << 20
    """Bytes of the messages of one transaction."""
    prepared_bytes: int = 256 << 20
    """Bytes of the messages of all open transactions."""
    client_share: int = 50
    """How much of the limits above, from `waiting_pulls` on, one client address may use, percent."""
    auto_create: bool = True
    """Whether clients may have destinations created."""
    group_idle: int = 300_000
    dedup_window: int = 120_000
    """How long a message that its client names is remembered, ms. 0: messages are not deduplicated."""
    dedup_bytes: int = 64 << 20
    """Memory for that."""
    metric_labels: int = 100
    """Destinations, and groups, that have metrics of their own."""
    latest: bool = False
    """Where a new group starts: True: after the newest message; False: at the oldest one kept."""


@dataclass(slots=True)
class Counters:
    """The engine's totals since the start, and its current numbers. `bridge/metrics.py` says what each one counts."""

    produced: int = 0
    duplicates: int = 0
    delivered: int = 0
    redelivered: int = 0
    settled: int = 0
    nacked: int = 0
    leases_ended: int = 0
    expired: int = 0
    dead_letters: int = 0
    dead_letter_failures: int = 0
    callbacks_delivered: int = 0
    callbacks_failed: int = 0
    transactions_committed: int = 0
    transactions_rolled_back: int = 0
    transaction_checks: int = 0
    # current numbers
    in_flight: int = 0
    in_flight_bytes: int = 0
    waiting_pulls: int = 0
    callbacks: int = 0
    callback_circuits_open: int = 0


OTHER: Final = "other"
"""The label of all names beyond the bound, and of a destination that has this name."""

Name = TypeVar("Name", bound=Hashable)


@dataclass(slots=True)
class Counts:
    """What was counted under one label since the start."""

    stored: int = 0
    delivered: int = 0
    settled: int = 0


class LabelCounts(Generic[Name]):
    """The counts of the first `limit` names; all later ones share those of `other`, so that no count ever falls."""

    def __init__(self, limit: int, other: Name) -> None:
        self._limit = limit
        self._counts = {other: Counts()}
        self._other = other

    def of(self, name: Name) -> Counts:
        """Return the counts of a name."""
        return self._counts.get(name) or self._add(name)

    def label(self, name: Name) -> Name:
        """Return the name that a name is counted under."""
        return name if name in self._counts else self._other

    def items(self) -> Iterable[tuple[Name, Counts]]:
        """Return every label and its counts."""
        return self._counts.items()

    def _add(self, name: Name) -> Counts:
        if len(self._counts) > self._limit:
            return self._counts[self._other]
        counts = self._counts[name] = Counts()
        return counts
