"""Whether a job may begin: what manifests and checkpoint say of each other. `judge` is pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from bridge.errors import CannotStart
from bridge.mirror import layout
from bridge.mirror.sink.catalogue import load
from bridge.mirror.sink.checkpoint import Checkpoint
from bridge.mirror.sink.files import Files
from bridge.mirror.sink.fold import NO_BATCH, Catalogue

_OURS: Final = {*layout.AREAS, layout.MANIFESTS, layout.STAGING, layout.CHECKPOINT, layout.UPKEEP}
_SHOWN: Final = 3


class Found(NamedTuple):
    """What was found on the disk."""

    out: str
    names: frozenset[str]
    """What lies right under `out`."""
    checkpoint: str
    query: str | None
    """The checkpoint's."""
    planned: bool
    """Whether it has planned a batch: from then on its query goes on where it says."""
    committed: int
    """Its last batch that is done; -1: none."""


def check(files: Files, checkpoint: Files, catalogue: Catalogue, *, resume: bool = False) -> None:
    """Raise `CannotStart` unless the job may begin. `resume`: whether a new query may go on after an earlier one."""
    spark = Checkpoint(checkpoint)
    names = frozenset(files.folders(""))
    found = Found(files.out, names, spark.place, spark.query(), spark.planned(), spark.committed())
    if judge(found, catalogue, resume=resume):
        _refuse_strays(files)


def start(catalogue: Catalogue) -> Mapping[str, int]:
    """Return where a query begins that has no checkpoint yet: by log, after what is covered."""
    return catalogue.next


def judge(found: Found, catalogue: Catalogue, *, resume: bool) -> bool:
    """Return whether a new query will go on after an earlier one. Raises `CannotStart`."""
    if found.query is not None and (missing := catalogue.missing(found.query, _last(found, catalogue))):
        raise CannotStart(_lost_manifests(found, found.query, missing))
    if catalogue.batches:
        return _after(found, catalogue, resume=resume)
    if strangers := sorted(name for name in found.names - _OURS if not name.startswith(".")):
        raise CannotStart(
            f"{found.out} is no mirror: it holds {', '.join(strangers[:_SHOWN])} and no manifests; name an empty "
            "folder, or that of a mirror."
        )
    if found.names.intersection(layout.AREAS):
        raise CannotStart(
            f"{found.out} holds data and no manifests: put the folder {layout.MANIFESTS} back from a backup. Without "
            "it nobody knows what is mirrored, and a job that began anew would mirror it twice."
        )
    return False


def _last(found: Found, catalogue: Catalogue) -> int:
    return max(found.committed, catalogue.batches.get(found.query or "", -1))


def _lost_manifests(found: Found, query: str, missing: list[int]) -> str:
    names = ", ".join(layout.manifest(layout.batch_key(query, batch)) for batch in missing[:_SHOWN])
    more = " and more" if len(missing) > _SHOWN else ""
    return (
        f"Manifests of {found.out} are gone: {names}{more}. These batches were done, so their files (named "
        f"{query[:8]}-{missing[0]:012d}-… and so on) are there and nobody knows what they cover. Put the manifests "
        "back from a backup. Without one move those files and the checkpoint away and run with --resume: what was "
        "covered last is then mirrored again, if the backend still holds it."
    )


def _after(found: Found, catalogue: Catalogue, *, resume: bool) -> bool:
    if found.query in catalogue.batches:
        return False
    if resume:
        return not found.planned
    what = "is not there" if found.query is None else f"belongs to another query, {found.query}"
    raise CannotStart(
        f"{found.out} holds the work of an earlier query, and the checkpoint {found.checkpoint} {what}. If it was "
        "deleted, run with --resume: the mirror goes on after what its manifests cover. If another job writes to this "
        "folder, name another one with --out."
    )


def _refuse_strays(files: Files) -> None:
    """A file that no manifest knows may hold what the new query will mirror again."""
    listed = [path for area in layout.AREAS for path, _ in files.list(area) if path.endswith(".parquet")]
    known = load(files).files  # after the list: what has come or gone since then is no stray
    strays = [path for path in listed if path not in known and files.exists(path)]
    if strays:
        raise CannotStart(
            f"{files.out} holds {len(strays)} files that no manifest knows, among them {', '.join(strays[:_SHOWN])}: a "
            "manifest was lost. Put it back from a backup or move the files away; else their rows might come twice."
        )


def others(files: Files, known: Mapping[str, int], query: str) -> set[str]:
    """Return queries that have begun to write to this mirror since its catalogue was read."""
    return set(files.folders(layout.MANIFESTS)) - {query, "snapshots", *known, *NO_BATCH}
