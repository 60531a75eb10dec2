"""The folders of a mirror, hour by hour. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from urllib.parse import unquote

from bridge.mirror.manifest import File

HOUR: Final = timedelta(hours=1)


class Folder(NamedTuple):
    """One hour of one destination."""

    start: datetime
    area: str
    destination: str
    path: str
    """Relative to `--out`."""

    @property
    def end(self) -> datetime:
        """When the hour is over."""
        return self.start + HOUR


def folder(path: str) -> Folder:
    """Return the folder of a file. Raises `ValueError` for a path that the mirror does not make."""
    above, _, _ = path.rpartition("/")
    try:
        area, *places = above.split("/")
        destination, date, hour = (
            place.removeprefix(f"{name}=") for name, place in zip(("destination", "date", "hour"), places, strict=True)
        )
        start = datetime.strptime(f"{date} {hour}", "%Y-%m-%d %H").replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"{path} is no file of a mirror") from None
    return Folder(start, area, unquote(destination), above)


def by_folder(files: Iterable[File]) -> dict[Folder, list[File]]:
    """Sort files into their folders: the oldest hour first."""
    found: dict[str, list[File]] = {}
    for file in files:
        found.setdefault(file.path.rpartition("/")[0], []).append(file)
    return dict(sorted((folder(together[0].path), together) for together in found.values()))
