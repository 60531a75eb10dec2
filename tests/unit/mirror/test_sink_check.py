import errno

import pytest

from bridge.errors import CannotStart
from bridge.mirror.manifest import Manifest
from bridge.mirror.sink.check import Found, judge
from bridge.mirror.sink.fold import Catalogue
from bridge.mirror.sink.full import explain

EMPTY = Found("file:/m", frozenset(), "file:/m/checkpoint", None, planned=False, committed=-1)
RUNNING = EMPTY._replace(
    names=frozenset({"data", "manifests", "staging", "checkpoint"}), query="q", planned=True, committed=1
)


def catalogue(*keys: str) -> Catalogue:
    made = Catalogue()
    for key in keys:
        made.add(Manifest(key, 0))
    return made


TWO = ("q/000000000000", "q/000000000001")


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("found", "keys"),
    [
        (EMPTY, ()),
        (EMPTY._replace(names=frozenset({"staging", "checkpoint", ".DS_Store"}), query="q"), ()),
        (RUNNING._replace(names=frozenset({"checkpoint", "staging"}), committed=-1), ()),
        (RUNNING, TWO),
        (RUNNING._replace(committed=0), TWO),
        (RUNNING, (*TWO, "old/000000000000", "compact/x")),
    ],
    ids=["nothing", "died before its first batch", "and in it", "goes on", "died before Spark's commit", "resumed"],
)
def test_a_job_may_begin(found: Found, keys: tuple[str, ...], resume: bool) -> None:
    assert not judge(found, catalogue(*keys), resume=resume)


@pytest.mark.parametrize(
    ("found", "keys", "says"),
    [
        (EMPTY._replace(names=frozenset({"photos"})), (), "is no mirror: it holds photos"),
        (EMPTY._replace(names=frozenset({"data"})), (), "holds data and no manifests"),
        (RUNNING, TWO[:1], "are gone: manifests/q/000000000001.json"),
        (RUNNING, TWO[1:], "are gone: manifests/q/000000000000.json"),
        (RUNNING, (), "are gone"),
        (RUNNING._replace(query=None, planned=False, committed=-1), TWO, "is not there"),
        (RUNNING._replace(query="another", planned=False, committed=-1), TWO, "belongs to another query, another"),
    ],
)
def test_a_job_may_not_begin(found: Found, keys: tuple[str, ...], says: str) -> None:
    with pytest.raises(CannotStart, match=says):
        judge(found, catalogue(*keys), resume=False)


def test_a_lost_checkpoint_is_resumed_where_one_says_so() -> None:
    lost = RUNNING._replace(query=None, planned=False, committed=-1)
    assert judge(lost, catalogue(*TWO), resume=True)
    assert judge(lost._replace(query="new"), catalogue(*TWO), resume=True)
    assert not judge(lost._replace(query="new", planned=True), catalogue(*TWO), resume=True)


def test_a_lost_manifest_is_not_resumed_over() -> None:
    with pytest.raises(CannotStart, match="are gone"):
        judge(RUNNING, catalogue(*TWO[:1]), resume=True)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "whatever"),
        RuntimeError("An error\norg.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n\tat x"),
        OSError("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException: quota"),
    ],
)
def test_a_full_disk_is_told_by_any_name(error: Exception) -> None:
    assert str(explain(error, "file:/m")).startswith("There is no room left to write to file:/m")
    assert explain(OSError(errno.EIO, "I/O error"), "file:/m") is None
