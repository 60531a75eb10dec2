"""What all manifests come to. Pure."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Self

from adapters.runs import Runs
from bridge.mirror.manifest import File, Gap, Manifest, Ranges

NO_BATCH = ("compact", "prune")
"""What stands in a key in the place of a query where the change is no batch."""


class Catalogue:
    """A fold over manifests. Those of one query come in its order, else that does not matter: what is gone stays gone.

    `keep_files` False: the files are left out, for who only asks what is covered. They are by far the most of it.
    """

    def __init__(self, *, keep_files: bool = True) -> None:
        self.files: dict[str, File] = {}
        """What readers may see, by path. One whose batch is being published just now may not be there yet."""
        self.covered: defaultdict[str, Runs] = defaultdict(Runs)
        """By log, every offset that is mirrored, or known to be gone."""
        self.gaps: list[Gap] = []
        self.committed = 0
        """When the last manifest was written, ms since 1970; 0: never."""
        self._keep_files = keep_files
        self._seen: defaultdict[str, Runs] = defaultdict(Runs)
        self._changes: set[str] = set()
        self._gone: set[str] = set()
        """Files whose removal was told before they were."""

    def __contains__(self, key: str) -> bool:
        query, _, number = key.partition("/")
        return key in self._changes if query in NO_BATCH else query in self._seen and int(number) in self._seen[query]

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self.files.values())

    @property
    def next(self) -> dict[str, int]:
        """By log, the first offset after everything covered: where a new query begins."""
        return {log: max(end for _, end in runs.bounds()) for log, runs in self.covered.items()}

    @property
    def batches(self) -> dict[str, int]:
        """By query, its last batch."""
        return {query: max(end for _, end in runs.bounds()) - 1 for query, runs in self._seen.items()}

    def missing(self, query: str, last: int) -> list[int]:
        """Return the batches of a query from 0 to `last` of which there is no manifest; at most the first ten."""
        seen, batch = self._seen.get(query, Runs()), 0
        found: list[int] = []
        while len(found) < 10 and (batch := seen.past(batch)) <= last:  # noqa: PLR2004 - as the docstring says
            found.append(batch)
            batch += 1
        return found

    def overlap(self, ranges: Ranges, gaps: Collection[Gap] = ()) -> Ranges:
        """Return those of these ranges of which something is covered already; `gaps`: those found with them."""
        anew = {gap.log for gap in gaps if gap.end is None}
        return {
            log: (start, end)
            for log, (start, end) in ranges.items()
            if log not in anew and any(max(start, a) < min(end, b) for a, b in self.covered.get(log, Runs()).bounds())
        }

    def add(self, manifest: Manifest) -> None:
        """Take in a manifest. Twice is harmless."""
        if manifest.key in self:
            return
        query, _, number = manifest.key.partition("/")
        if query in NO_BATCH:
            self._changes.add(manifest.key)
        else:
            self._seen[query].add(int(number))
        for gap in manifest.gaps:
            if gap.end is None:  # the log's life ended; the next one may be called the same, and counts anew
                self.covered.pop(gap.log, None)
        for log, (start, end) in manifest.ranges.items():
            if start < end:
                self.covered[log].add_run(start, end)
        self.gaps += manifest.gaps
        self.committed = max(self.committed, manifest.committed)
        if self._keep_files:
            self._change(manifest.adds, manifest.removes)

    def _change(self, adds: Iterable[File], removes: Iterable[str]) -> None:
        for file in adds:
            if file.path in self._gone:
                self._gone.remove(file.path)
            else:
                self.files[file.path] = file
        for path in removes:
            if self.files.pop(path, None) is None:
                self._gone.add(path)

    def to_json(self, changes: Collection[str]) -> str:
        """Write it down; `changes`: the keys that are no batches and may be told again."""
        fields = {
            "version": 1,
            "committed": self.committed,
            "covered": {log: list(runs.bounds()) for log, runs in sorted(self.covered.items())},
            "seen": {query: list(runs.bounds()) for query, runs in sorted(self._seen.items())},
            "changes": sorted(self._changes.intersection(changes)),
            "gone": sorted(self._gone),
            "gaps": self.gaps,
            "files": list(self.files.values()),
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, *, keep_files: bool = True) -> Self:
        """Read what `to_json` wrote. Raises `ValueError` if it is something else, or of a later version."""
        made = cls(keep_files=keep_files)
        try:
            fields = json.loads(text)
            if fields["version"] != 1:
                raise ValueError("it was written by a later version of the mirror")
            made.committed = int(fields["committed"])
            made.covered.update(_runs(fields["covered"]))
            made._seen.update(_runs(fields["seen"]))
            made._changes.update(fields["changes"])
            made.gaps += [Gap(*gap) for gap in fields["gaps"]]
            if keep_files:
                made._gone.update(fields["gone"])
                made.files.update((path, File(path, rows, size)) for path, rows, size in fields["files"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is no snapshot: {error!r}") from None
        return made


def _runs(written: dict[str, Any]) -> Iterator[tuple[str, Runs]]:
    for name, bounds in written.items():
        runs = Runs()
        for start, end in bounds:
            runs.add_run(start, end)
        yield name, runs
