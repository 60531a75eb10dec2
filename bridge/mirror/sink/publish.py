"""Manifests made true."""

import time
from posixpath import dirname
from typing import Final

from bridge.mirror import layout
from bridge.mirror.manifest import Manifest, from_json, to_json
from bridge.mirror.sink.files import Files, each
from bridge.mirror.sink.fold import NO_BATCH

AREA: Final = "area="
"""What Spark puts before the name of an area in a staging folder."""
_ABANDONED_MS: Final = 24 * 3600 * 1000


def write(files: Files, manifest: Manifest) -> None:
    """Write a manifest: the commit. What it says is a fact from now on, and `publish` makes it visible."""
    files.make(layout.staging(manifest.key))  # it says that there is something to do, also where nothing was staged
    files.write(layout.manifest(manifest.key), to_json(manifest))


def publish(files: Files, manifest: Manifest) -> None:
    """Make a manifest true, however much of it already is.

    What it removes goes before what it adds comes: a reader may miss rows for a moment and never sees one twice.
    """
    folder = layout.staging(manifest.key)
    staged = {path.removeprefix(f"{folder}/").removeprefix(AREA): path for path, _ in files.list(folder)}
    moves = {staged[file.path]: file.path for file in manifest.adds if file.path in staged}
    if files.exists(folder):
        each(files.delete, manifest.removes)
    each(files.make, {dirname(target) for target in moves.values()})
    each(lambda source: _move(files, source, moves[source]), moves)
    files.delete(folder)


def _move(files: Files, source: str, target: str) -> None:
    if files.rename(source, target):
        return
    if files.exists(target):
        files.delete(source)  # a store that copies had died in between
        return
    files.make(dirname(target))  # a prune had just removed the empty folder
    if not files.rename(source, target):
        raise OSError(f"{source} cannot be moved to {target}")


def recover(files: Files, query: str | None = None) -> None:
    """Finish what a crash left: what has a manifest is published; the rest is deleted if it is surely nobody's.

    That is: it is of `query`, whose only job calls this, or was begun a day ago.
    """
    now = time.time() * 1000
    for name, changed in files.folders(layout.STAGING).items():
        text = files.read(layout.manifest(_key(name)))
        if text is not None:
            publish(files, from_json(text))
        elif (query and name.startswith(f"{query}-")) or now - changed > _ABANDONED_MS:
            files.delete(f"{layout.STAGING}/{name}")


def _key(folder: str) -> str:
    kind, _, rest = folder.partition("-")
    return f"{kind}/{rest}" if kind in NO_BATCH else "/".join(folder.rsplit("-", 1))
