"""A manifest: one change of the mirror, whole or not at all. Pure: records and their JSON, both directions.

Its file is the commit. Before it is there nothing of the change is visible, and what was staged is rubbish; once it is
there the change is made, again and again if need be, until `staging/<key>` is gone: `removes` are deleted, then `adds`
renamed to their places.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

Ranges = Mapping[str, tuple[int, int]]
"""By log: the first offset, and the one after the last. A range may hold fewer messages than offsets."""


class Gap(NamedTuple):
    """Offsets that were gone before the mirror came to them."""

    log: str
    start: int
    end: int | None
    """The first that is there again; None: the log's life ended, and how far it had come is not known."""


class File(NamedTuple):
    """One Parquet file."""

    path: str
    """Relative to `--out`, percent-escaped as Spark does: `data/destination=…/date=…/hour=…/<name>.parquet`."""
    rows: int
    bytes: int


class Manifest(NamedTuple):
    """One change."""

    key: str
    """`<query id>/<batch, 12 digits>`; or `compact/<id>`, `prune/<id>`."""
    committed: int
    """When, ms since 1970."""
    ranges: Ranges = MappingProxyType({})
    """What a batch covers."""
    gaps: tuple[Gap, ...] = ()
    adds: tuple[File, ...] = ()
    """A file `data/x/y.parquet` is staged as `<staging>/data/x/y.parquet`."""
    removes: tuple[str, ...] = ()


def to_json(manifest: Manifest) -> str:
    """Write a manifest."""
    fields = manifest._asdict() | {
        "ranges": {log: list(pair) for log, pair in sorted(manifest.ranges.items())},
        "gaps": [gap._asdict() for gap in manifest.gaps],
        "adds": [file._asdict() for file in manifest.adds],
    }
    return json.dumps({"version": 1, **fields})


def from_json(text: str) -> Manifest:
    """Read a manifest. Raises `ValueError` if it is none, or of a later version."""
    try:
        fields = json.loads(text)
        if fields.pop("version") != 1:
            raise ValueError("it was written by a later version of the mirror")
        return Manifest(
            **fields
            | {
                "ranges": {log: (int(start), int(end)) for log, (start, end) in fields["ranges"].items()},
                "gaps": tuple(Gap(**gap) for gap in fields["gaps"]),
                "adds": tuple(File(**file) for file in fields["adds"]),
                "removes": tuple(fields["removes"]),
            }
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no manifest: {error!r}") from None
