"""What to compact, and what of it together. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from bridge.mirror.layout import AREAS
from bridge.mirror.manifest import File
from bridge.mirror.upkeep.folders import Folder, by_folder

PREFIX: Final = "compact-"
"""How the name of a file begins that a compaction has written."""
FILES_AT_ONCE: Final = 1000
"""Files that one change replaces: between its first removal and its last rename their rows are not to be seen."""


class Work(NamedTuple):
    """One change: folders of one area that are compacted together."""

    inputs: Mapping[Folder, list[File]]
    outputs: int
    """Files that each folder becomes; more than one only for a single folder."""

    @property
    def files(self) -> list[File]:
        """All files to replace."""
        return [file for files in self.inputs.values() for file in files]


def plan(files: Iterable[File], closed: datetime, target: int) -> Iterator[Work]:
    """Yield the work on hours that ended by `closed`, the oldest first; files are to have `target` bytes.

    It comes to an end: what a compaction has written is taken again only together with something else, and then
    becomes fewer files.
    """
    folders = by_folder(files)
    for area in AREAS:
        bundle = Work({}, 1)
        for place, found in folders.items():
            inputs = [file for file in found if not _finished(file, target)]
            if place.area != area or place.end > closed or len(inputs) < 2:  # noqa: PLR2004 - one is what it comes to
                continue
            alone = Work({place: inputs}, -(-_bytes(inputs) // target))
            if alone.outputs > 1:
                yield alone
                continue
            if not _fits(bundle, inputs, target):
                yield bundle
                bundle = Work({}, 1)
            bundle = Work({**bundle.inputs, place: inputs}, 1)
        if bundle.inputs:
            yield bundle


def _fits(bundle: Work, inputs: list[File], target: int) -> bool:
    together = [*bundle.files, *inputs]
    return not bundle.inputs or (len(together) <= FILES_AT_ONCE and _bytes(together) <= target)


def without(work: Work, bad: Iterable[str]) -> Work:
    """Return the work with these files left as they are."""
    left = set(bad)
    kept = {place: [file for file in files if file.path not in left] for place, files in work.inputs.items()}
    return Work({place: files for place, files in kept.items() if len(files) > 1}, work.outputs)


def _finished(file: File, target: int) -> bool:
    return file.path.rpartition("/")[2].startswith(PREFIX) and file.bytes >= target // 2


def _bytes(files: Iterable[File]) -> int:
    return sum(file.bytes for file in files)
