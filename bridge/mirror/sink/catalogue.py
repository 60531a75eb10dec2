"""The catalogue as it lies on the disk: manifests, and those that are rolled up.

Ten thousand manifests a day would take minutes to read one by one. So `roll` folds the older ones into one file,
`manifests/snapshots/<n>.json`, and deletes them after it is written: whoever dies in between leaves manifests that are
told twice, which is harmless. Only the job rolls: two at a time would lose what the other had folded.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from bridge.errors import CannotStart
from bridge.mirror import layout
from bridge.mirror.manifest import Manifest, from_json
from bridge.mirror.sink.files import AT_ONCE, Files, each
from bridge.mirror.sink.fold import NO_BATCH, Catalogue

__all__ = ["Catalogue", "keys", "load", "roll"]

SNAPSHOTS: Final = f"{layout.MANIFESTS}/snapshots"
KEPT: Final = 100
"""So many of each query's last ones stay: Spark repeats the last one, and a person may want to look at some."""

_T = TypeVar("_T")


def load(files: Files, *, keep_files: bool = True) -> Catalogue:
    """Return what all manifests come to. Raises `CannotStart` if one of them cannot be read."""
    while True:
        number, catalogue = _newest(files, keep_files=keep_files)
        for manifest in _read(files, keys(files)):
            catalogue.add(manifest)
        if _last(files) == number:  # else manifests may have been rolled up and deleted while they were read
            return catalogue


def keys(files: Files) -> list[str]:
    """Return the keys of all manifests that are not rolled up."""
    prefix, suffix = f"{layout.MANIFESTS}/", ".json"
    found = (path for path, _ in files.list(layout.MANIFESTS) if not path.startswith(f"{SNAPSHOTS}/"))
    return [path.removeprefix(prefix).removesuffix(suffix) for path in found if path.endswith(suffix)]


def roll(files: Files) -> None:
    """Fold the older manifests into a new snapshot."""
    present, pending = keys(files), files.folders(layout.STAGING)
    ripe = [key for key in _older(present) if layout.staging(key).rpartition("/")[2] not in pending]
    number, catalogue = _newest(files, keep_files=True)
    for manifest in _read(files, ripe):
        catalogue.add(manifest)
    files.write(_path(number + 1), catalogue.to_json(present))
    each(files.delete, map(layout.manifest, ripe))
    each(files.delete, (path for path, _ in files.list(SNAPSHOTS) if path < _path(number)))


def _older(present: Iterable[str]) -> list[str]:
    by_query = defaultdict(list)
    for key in present:
        by_query[key.partition("/")[0]].append(key)
    return [
        key
        for query, of in by_query.items()
        for key in (of if query in NO_BATCH else sorted(of)[: max(len(of) - KEPT, 0)])
    ]


def _path(number: int) -> str:
    return f"{SNAPSHOTS}/{number:012d}.json"


def _last(files: Files) -> int:
    return max(
        (int(name.removesuffix(".json")) for name in files.folders(SNAPSHOTS) if name.endswith(".json")), default=0
    )


def _newest(files: Files, *, keep_files: bool) -> tuple[int, Catalogue]:
    number = _last(files)
    if not number:
        return 0, Catalogue(keep_files=keep_files)
    text = files.read(_path(number))
    if text is None:  # a later one has come
        return _newest(files, keep_files=keep_files)
    return number, _parsed(_path(number), lambda: Catalogue.from_json(text, keep_files=keep_files))


def _read(files: Files, wanted: Iterable[str]) -> Iterable[Manifest]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for path, text in pool.map(lambda key: (layout.manifest(key), files.read(layout.manifest(key))), wanted):
            if text is not None:
                yield _manifest(path, text)


def _manifest(path: str, text: str) -> Manifest:
    return _parsed(path, lambda: from_json(text))


def _parsed(path: str, parse: Callable[[], _T]) -> _T:
    try:
        return parse()
    except ValueError as error:
        raise CannotStart(
            f"{path} cannot be read ({error}); put it back from a backup: without it nobody knows what is mirrored."
        ) from None
