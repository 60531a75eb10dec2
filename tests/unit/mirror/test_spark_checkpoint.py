"""Whether a job may begin, and what a full disk is called."""

import errno
from types import SimpleNamespace
from typing import NamedTuple, cast

import pytest

from bridge.errors import CannotStart
from bridge.mirror.offsets import Record
from bridge.mirror.sink import explain_full_disk
from bridge.mirror.spark_checkpoint import Checkpoint, check_start
from bridge.mirror.table import Table


class Found(NamedTuple):
    """A checkpoint and a table as they are found."""

    query: str | None = None
    planned: bool = False
    committed: int = -1
    files: bool = False
    record: Record | None = None


EMPTY = Found()
RUNNING = Found("q", planned=True, committed=1, files=True, record=Record("q", 1))
LOST = RUNNING._replace(query=None, planned=False, committed=-1)


def check(found: Found, *, resume: bool) -> None:
    checkpoint = SimpleNamespace(
        place="/m/checkpoint",
        query=lambda: found.query,
        planned=lambda: found.planned,
        committed=lambda: found.committed,
    )
    table = SimpleNamespace(record=lambda: found.record, files=lambda: iter([object()] * found.files))
    assert check_start("/m", cast("Checkpoint", checkpoint), cast("Table", table), resume=resume) == found.record


def test_a_job_may_begin(subtests: pytest.Subtests) -> None:
    founds = [EMPTY, EMPTY._replace(query="q", planned=True), RUNNING, RUNNING._replace(committed=0)]
    for found in founds:
        for resume in (False, True):
            with subtests.test(found=found, resume=resume):
                check(found, resume=resume)


def test_a_job_may_not_begin(subtests: pytest.Subtests) -> None:
    cases: list[tuple[Found, str]] = [
        (EMPTY._replace(files=True), "no commit .* tells their offsets"),
        (EMPTY._replace(query="q", planned=True, committed=4), "has committed batch 4, and /m holds no batch"),
        (RUNNING._replace(committed=2), "the table is an old copy"),
        (RUNNING._replace(query="another"), "belongs to query another"),
    ]
    for found, says in cases:
        for resume in (False, True):
            with subtests.test(says=says, resume=resume), pytest.raises(CannotStart, match=says):
                check(found, resume=resume)


def test_a_lost_checkpoint_is_resumed_only_if_the_operator_says_so() -> None:
    for lost in (LOST, LOST._replace(query="new")):
        with pytest.raises(CannotStart, match="run with --resume"):
            check(lost, resume=False)
        check(lost, resume=True)


def test_a_full_disk_is_recognized_by_any_name(subtests: pytest.Subtests) -> None:
    cases: list[Exception] = [
        OSError(errno.ENOSPC, "whatever"),
        RuntimeError("An error\norg.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n\tat x"),
        OSError("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException: quota"),
    ]
    for error in cases:
        with subtests.test(error=error):
            assert str(explain_full_disk(error, "/m")).startswith("The disk of /m, or of Spark's folders, is full")
            assert explain_full_disk(OSError(errno.EIO, "I/O error"), "/m") is None
