"""Retention: whole hours that are old enough go. Their offsets stay covered, so nothing is mirrored anew."""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from uuid_utils import uuid7

from bridge.mirror import layout
from bridge.mirror.manifest import File, Manifest
from bridge.mirror.sink.files import Files
from bridge.mirror.sink.publish import publish, write
from bridge.mirror.upkeep.claim import claimed
from bridge.mirror.upkeep.disk import drop_empty, settled, tidy
from bridge.mirror.upkeep.folders import Folder, by_folder

_FOLDERS_AT_ONCE: Final = 1000
"""Folders of one manifest."""


class Rule(NamedTuple):
    """What is old enough."""

    keep: timedelta
    areas: Collection[str] = layout.AREAS
    destinations: Collection[str] = ()
    """Empty: all."""
    today: bool = False
    """Whether hours of the current day (UTC) may go too."""


Going = dict[Folder, list[File]]


def due(files: Iterable[File], rule: Rule, now: datetime) -> Going:
    """Return the folders that go, the oldest first. Pure."""
    return {
        folder: found
        for folder, found in by_folder(files).items()
        if folder.end <= now - rule.keep
        and (rule.today or folder.start.date() < now.date())
        and folder.area in rule.areas
        and (not rule.destinations or folder.destination in rule.destinations)
    }


def preview(files: Files, rule: Rule, now: datetime) -> Going:
    """Return what would go."""
    return due(settled(files), rule, now)


def prune(files: Files, rule: Rule, now: datetime) -> Iterator[Going]:
    """Drop them, and yield what went. Raises `CannotStart` if another upkeep is at work."""
    with claimed(files) as claim:
        tidy(files)
        going = list(due(settled(files), rule, now).items())
        for first in range(0, len(going), _FOLDERS_AT_ONCE):
            some = dict(going[first : first + _FOLDERS_AT_ONCE])
            removes = tuple(file.path for found in some.values() for file in found)
            manifest = Manifest(f"prune/{uuid7()}", int(now.timestamp() * 1000), removes=removes)
            claim.check()
            write(files, manifest)
            publish(files, manifest)
            drop_empty(files, [folder.path for folder in some])
            yield some
