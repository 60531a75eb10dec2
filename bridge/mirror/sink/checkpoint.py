"""What Spark wrote into a query's checkpoint: read only."""

import json

from bridge.errors import CannotStart
from bridge.mirror.sink.files import Files

_HEAD = 2
"""Lines of an offset file before the sources' own: a version, and Spark's metadata."""


class Checkpoint:
    """A checkpoint of a query with one source. `files` is rooted at it."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.place = files.out

    def query(self) -> str | None:
        """Return the id of its query; None: there is none yet. Raises `CannotStart` if it is damaged."""
        text = self._files.read("metadata")
        if text is None:
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError):
            raise CannotStart(
                f"The checkpoint {self.place} is damaged: its file metadata cannot be read. Delete the checkpoint and "
                "run with --resume: the mirror goes on after what its manifests cover."
            ) from None

    def committed(self) -> int:
        """Return the last batch that Spark knows to be done; -1: none."""
        return max((int(name) for name in self._files.folders("commits") if name.isdecimal()), default=-1)

    def planned(self) -> bool:
        """Whether a batch was ever planned: from then on a query begins where its checkpoint says."""
        return any(name.isdecimal() for name in self._files.folders("offsets"))

    def offset(self, batch: int) -> str | None:
        """Return the source's offset at the end of a batch; for -1 that at which the query began, if it was noted.

        None: there is no such file. Spark keeps those of the last 100 batches.
        """
        text = self._files.read("sources/0/0" if batch < 0 else f"offsets/{batch}")
        if text is None:
            return None
        return text.split("\n", 1 if batch < 0 else _HEAD)[-1].strip()
