"""The settings that the bridge's own topics need, and whether an existing topic has them.

An operator or a tool may have made the topics before, with the brokers' defaults. Then Kafka deletes delayed messages
after seven days, or all but the newest record of a key.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from adapters.kafka.delay.schedule import topics_of
from adapters.kafka.names import Own

Configs = Mapping[str, str]

DELAYED: Final[Configs] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(64 * 1024 * 1024),  # forwarded records are deleted by whole segments
}
TRANSACTIONS: Final[Configs] = {
    "cleanup.policy": "delete",
    "retention.ms": str(7 * 24 * 3_600_000),
    "retention.bytes": "-1",
    "segment.bytes": str(64 << 20),
}
COMPACTED: Final[Configs] = {"cleanup.policy": "compact"}

_POLICY: Final = "cleanup.policy"
CHECKED: Final = (_POLICY, "retention.ms", "retention.bytes")
"""Settings without which Kafka deletes what the bridge needs."""
_UNLIMITED: Final = "-1"


class Described(NamedTuple):
    """A topic of the cluster."""

    configs: Configs
    """Those of `CHECKED` that the bridge's user may read."""
    replicas: int
    """Of the partition that has the fewest."""


def configs_of(prefix: str) -> dict[str, Configs]:
    """Return the settings of each topic that bridges of a prefix may have."""
    own = Own(prefix)
    return {
        **dict.fromkeys(topics_of(prefix).values(), DELAYED),
        own.transactions: TRANSACTIONS,
        own.notes: COMPACTED,
        own.purges: COMPACTED,
    }


def lacks(wanted: Configs, found: Configs) -> list[str]:
    """Return the settings that must be changed: `retention.ms=-1 (it is 3600000)`."""
    names = [name for name in CHECKED if name in wanted and name in found]
    wrong = [name for name in names if not _suffices(name, wanted[name], found[name])]
    return [f"{name}={wanted[name]} (it is {found[name]})" for name in wrong]


def _suffices(name: str, wanted: str, found: str) -> bool:
    """Whether the topic has the setting, or keeps more than that."""
    if name == _POLICY or wanted == _UNLIMITED:
        return found == wanted
    return found == _UNLIMITED or int(found) >= int(wanted)
