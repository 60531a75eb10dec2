"""Where things lie under `--out`. Pure: names only, relative to it, with `/`, for any filesystem that Spark knows.

| path | |
|---|---|
| `data/destination=…/date=…/hour=…/` | messages: the only folder that readers look into |
| `dead-letters/…`, `quarantine/…` | the same layout, for dead letters and for what could not be read |
| `manifests/<query>/<batch>.json` | what was committed, and thereby is: see `manifest.py` |
| `staging/<query>-<batch>/` | what is being written; gone once it is published |
| `upkeep/` | who compacts or prunes just now |
| `checkpoint/` | Spark's own |
"""

from typing import Final

from bridge.mirror.schema import Area

AREAS: Final[tuple[Area, ...]] = ("data", "dead-letters", "quarantine")
MANIFESTS: Final = "manifests"
STAGING: Final = "staging"
UPKEEP: Final = "upkeep"
CHECKPOINT: Final = "checkpoint"


def manifest(key: str) -> str:
    """Return the file of a manifest by its key, `<query>/<batch>`."""
    return f"{MANIFESTS}/{key}.json"


def staging(key: str) -> str:
    """Return the folder in which the files of a manifest are written."""
    return f"{STAGING}/{key.replace('/', '-')}"


def batch_key(query: str, batch: int) -> str:
    """Return the key of a batch; sorted as text they are in order."""
    return f"{query}/{batch:012d}"
