"""Where the suite finds its bridges in this repository: each place is a server in front of a backend.

A backend joins the suite by its URL here; no test names it. `{directory}` and `{name}` in a URL belong to one bridge
and outlive it; `{kafka}` and `{rabbitmq}` are the addresses of the tests' own brokers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_CARRIED: Final = ("qos", "compression", "correlationId", "traceId", "transactionId", "messageKey", "partition")
_FIELDS: Final = dict.fromkeys((*_CARRIED, "durability", "delayTime"), "native") | {
    "priority": "emulated",
    "expireTime": "emulated",
}
_LIMITS: Final = {
    "body": 4 << 20,
    "headers": 32 << 10,
    "batch": 1000,
    "waitMills": 55_000,
    "leaseMills": 900_000,
    "nackDelayMills": 86_400_000,
    "transactionMills": 3_600_000,
    "maxDeliveries": 16,
}


def _capabilities(*, durable: bool, shared: bool, transactions: str, **fields: str) -> dict[str, Any]:
    return {
        "version": "1.0.0",
        "fields": _FIELDS | fields,
        "durable": durable,
        "lateGroups": True,
        "sharedGroups": shared,
        "transactions": transactions,
        "dedup": {"windowMills": 120_000, "scope": "bridge"},
        "limits": _LIMITS,
    }


_MEMORY: Final = _capabilities(durable=False, shared=False, transactions="native", durability="unsupported")
_JOURNAL: Final = _capabilities(durable=True, shared=False, transactions="native")
_ON_KAFKA: Final = _capabilities(
    durable=True, shared=True, transactions="native", delayTime="emulated", compression="emulated"
)
_ON_RABBITMQ: Final = _capabilities(
    durable=True,
    shared=True,
    transactions="emulated",
    delayTime="emulated",
    messageKey="emulated",
    partition="emulated",
)
_KAFKA: Final = "kafka://{kafka}?prefix={name}.&instance={name}&session=6000"
_RABBITMQ: Final = "{rabbitmq}?instance={name}"


@dataclass(frozen=True, eq=False)
class Place:
    """Where the bridge is, or how to start it."""

    url: str | None
    server: str = ""
    backend: str = ""
    declares: Mapping[str, Any] | None = None
    """What `/v1/capabilities` must say. None: the bridge at `url` may say anything."""

    @property
    def on_broker(self) -> bool:
        """Whether the backend is another program, which makes each start of a bridge slow."""
        return "{kafka}" in self.backend or "{rabbitmq}" in self.backend


PLACES: Final[Mapping[str, Place]] = {
    "hypercorn-memory": Place(None, "hypercorn", "memory://", _MEMORY),
    "hypercorn-journal": Place(None, "hypercorn", "memory://?journal={directory}", _JOURNAL),
    "hypercorn-kafka": Place(None, "hypercorn", _KAFKA, _ON_KAFKA),
    "hypercorn-rabbitmq": Place(None, "hypercorn", _RABBITMQ, _ON_RABBITMQ),
    "granian-memory": Place(None, "granian", "memory://", _MEMORY),
    "granian-journal": Place(None, "granian", "memory://?journal={directory}", _JOURNAL),
    "granian-kafka": Place(None, "granian", f"{_KAFKA}&client=kafka-python", _ON_KAFKA),
    "granian-rabbitmq": Place(None, "granian", _RABBITMQ, _ON_RABBITMQ),
}
_WIRE: Final = ("hypercorn-memory", "granian-memory")
"""One place for each server."""
_USUAL: Final = ("hypercorn-memory", "hypercorn-kafka", "granian-rabbitmq")
"""One place for each backend; each server is in front of a broker."""
_DURABLE: Final = ("hypercorn-journal", "hypercorn-kafka", "granian-rabbitmq")


def places_for(*, wire: bool, needs: frozenset[str], slow_on_brokers: bool) -> Mapping[str, bool]:
    """Return at which places a test runs, and whether `make test` leaves it out there.

    `wire`: the backend makes no difference. `needs`: what the bridge must declare. `slow_on_brokers`: on a broker
    the test takes seconds and judges little that others do not.
    """
    able = {
        name: place
        for name, place in PLACES.items()
        if place.declares is not None and not any(place.declares[fact] in {False, "unsupported"} for fact in needs)
    }
    if wire:
        return {name: False for name in _WIRE if name in able}
    usual = _DURABLE if "durable" in needs else _USUAL
    return {name: name not in usual or (slow_on_brokers and place.on_broker) for name, place in able.items()}
