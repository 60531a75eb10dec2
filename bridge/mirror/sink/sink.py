"""What `foreachBatch` calls: a batch becomes a manifest and its files, once."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from posixpath import dirname
from typing import Final

from pyspark.sql import DataFrame

from adapters.clock import wall
from bridge.errors import CannotStart
from bridge.mirror import layout
from bridge.mirror.manifest import File, Gap, Manifest, Ranges, from_json
from bridge.mirror.schema import Area
from bridge.mirror.sink.catalogue import Catalogue, keys, roll
from bridge.mirror.sink.check import others
from bridge.mirror.sink.checkpoint import Checkpoint
from bridge.mirror.sink.files import Files
from bridge.mirror.sink.full import explain
from bridge.mirror.sink.publish import publish, write
from bridge.mirror.sink.staging import SPREAD, stage
from bridge.mirror.sources.base import Source
from bridge.mirror.watch.events import Committed, Phase

Observer = Callable[[Committed], None]
ROLL: Final = 1000
"""Manifests worth rolling up: reading them takes a second."""


class Sink:
    """Of one job. `failed` is what it refused, when it did: Spark tells only its text."""

    def __init__(
        self, files: Files, checkpoint: Files, catalogue: Catalogue, source: Source, observe: Observer
    ) -> None:
        self._files = files
        self._checkpoint = Checkpoint(checkpoint)
        self._source = source
        self._catalogue = catalogue
        self._observe = observe
        self._others = dict(catalogue.batches)
        self._loose = len(keys(files))
        self._spread = False
        self.out = files.out
        self.failed: CannotStart | None = None

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Mirror a batch. Raises `CannotStart` where a person must look, and what Spark and the disk raise."""
        query = str(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        try:
            self._mirror(frame, query, number)
        except CannotStart as error:
            self.failed = error
            raise
        except Exception as error:
            if (told := explain(error, self._files.out)) is None:
                raise
            self.failed = told
            raise told from error

    def _mirror(self, frame: DataFrame, query: str, number: int) -> None:
        key = layout.batch_key(query, number)
        before, after = self._offsets(number)
        ranges, gaps = self._source.moved(before, after), tuple(self._source.gaps(before, after))
        if key in self._catalogue:
            self._again(key, ranges)
            return
        self._refuse(query, ranges, gaps)
        self._files.delete(layout.staging(key))
        began = time.monotonic()
        adds = self._staged(frame, key, before, after)
        staged = time.monotonic()
        manifest = Manifest(key, wall(), ranges, gaps, tuple(adds))
        write(self._files, manifest)
        self._catalogue.add(manifest)
        written = time.monotonic()
        publish(self._files, manifest)
        phases: dict[Phase, float] = {
            "stage": staged - began,
            "commit": written - staged,
            "publish": time.monotonic() - written,
        }
        self._loose += 1
        self._observe(_told(number, manifest, phases))
        if self._loose >= ROLL:
            roll(self._files)
            self._loose = len(keys(self._files))

    def _offsets(self, number: int) -> tuple[str | None, str]:
        before, after = self._checkpoint.offset(number - 1), self._checkpoint.offset(number)
        if after is None or (before is None and number > 0):
            raise CannotStart(
                f"The checkpoint {self._checkpoint.place} is damaged: the offsets of batch {number} or of the one "
                "before are gone. Move it away and run with --resume."
            )
        return before, after

    def _again(self, key: str, ranges: Ranges) -> None:
        """Spark repeats a batch whose end it did not note; its plan may be lost too, if the power was cut."""
        text = self._files.read(layout.manifest(key))
        if text is None:
            raise CannotStart(f"Spark repeats batch {key}, whose manifest is rolled up: the checkpoint is an old copy.")
        manifest = from_json(text)
        if dict(manifest.ranges) != dict(ranges):
            raise CannotStart(
                f"The checkpoint {self._checkpoint.place} plans other offsets for batch {key} than its manifest holds: "
                "it is an old copy, or the power was cut. Move it away and run with --resume."
            )
        publish(self._files, manifest)

    def _refuse(self, query: str, ranges: Ranges, gaps: tuple[Gap, ...]) -> None:
        if overlap := self._catalogue.overlap(ranges, gaps):
            log, (start, end) = next(iter(overlap.items()))
            raise CannotStart(
                f"{self._files.out} holds some of what this batch would mirror, offsets {start} to {end - 1} of {log}: "
                "its checkpoint is an old copy or another mirror's. Move it away and run with --resume."
            )
        if found := others(self._files, self._others, query):
            raise CannotStart(
                f"Another mirror, query {min(found)}, has begun to write to {self._files.out}: end one of the two."
            )

    def _staged(self, frame: DataFrame, key: str, before: str | None, after: str) -> list[File]:
        try:
            try:
                adds = stage(frame, self._files, key, spread=self._spread)
            except Exception as error:
                again = self._source.instead(frame.sparkSession, before, after, error)
                if again is None:
                    raise
                self._files.delete(layout.staging(key))
                adds = stage(again, self._files, key, spread=self._spread)
        except BaseException:
            with suppress(OSError):
                self._files.delete(layout.staging(key))
            raise
        self._spread = len({dirname(file.path) for file in adds}) > SPREAD
        return adds


def _told(number: int, manifest: Manifest, seconds: Mapping[Phase, float]) -> Committed:
    rows = Counter[Area]()
    for file in manifest.adds:
        rows[next(area for area in layout.AREAS if file.path.startswith(f"{area}/"))] += file.rows
    return Committed(
        key=manifest.key,
        batch=number,
        rows=dict(rows),
        bytes=sum(file.bytes for file in manifest.adds),
        files=len(manifest.adds),
        gaps=manifest.gaps,
        milliseconds={phase: round(value * 1000) for phase, value in seconds.items()},
        committed=manifest.committed,
    )
