"""What really lies under a mirror, whatever its manifests say."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import PurePosixPath

from py4j.protocol import Py4JJavaError

from bridge.mirror.layout import STAGING
from bridge.mirror.manifest import File
from bridge.mirror.sink.catalogue import load
from bridge.mirror.sink.files import Files
from bridge.mirror.sink.fold import NO_BATCH
from bridge.mirror.sink.publish import AREA, recover


def tidy(files: Files) -> None:
    """Finish the changes that were committed and delete what was not. Only for who holds the claim."""
    recover(files)
    for name in files.folders(STAGING):
        if name.startswith(tuple(f"{kind}-" for kind in NO_BATCH)):
            files.delete(f"{STAGING}/{name}")


def settled(files: Files) -> list[File]:
    """Return the files of all manifests, but not those that a job has committed and is still to rename."""
    known = load(files).files.values()
    pending = {
        path.split("/", 2)[-1].removeprefix(AREA) for path, _ in files.list(STAGING)
    }  # after `load`: what is not here was renamed
    return [file for file in known if file.path not in pending]


def drop_empty(files: Files, folders: Iterable[str]) -> None:
    """Delete those of the folders that are empty, and the empty ones above them up to the area's.

    Never with what is in them: a job may have put a file there just now.
    """
    above = {str(parent) for folder in folders for parent in [PurePosixPath(folder), *PurePosixPath(folder).parents]}
    for folder in sorted((path for path in above if "/" in path), key=len, reverse=True):
        if files.folder is not None:
            with suppress(OSError):  # it is not empty, or gone
                os.rmdir(os.path.join(files.folder, folder))  # noqa: PTH106, PTH118 - as in files.py
        elif not files.folders(folder):
            place = files.path(folder)
            with suppress(Py4JJavaError):
                place.getFileSystem(files.conf).delete(place, False)
