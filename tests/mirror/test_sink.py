"""The sink's protocol with Spark, the real disk and a source of numbers."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bridge.errors import CannotStart
from bridge.mirror import layout
from bridge.mirror.manifest import File, Manifest, from_json, to_json
from bridge.mirror.rows import Rows
from bridge.mirror.schema import SOURCE_DDL
from bridge.mirror.sink import catalogue, check, staging
from bridge.mirror.sink import sink as room
from bridge.mirror.sink.catalogue import keys, load, roll
from bridge.mirror.sink.files import Files
from bridge.mirror.sink.publish import publish, recover, write
from bridge.mirror.sources import ranges
from bridge.mirror.sources.ranges import Place
from tests.mirror.numbers_job import Numbers, made, mirror

QUERY = "0198abcd-0000-4000-8000-000000000001"


def rows(out: Path) -> list[tuple[str, int]]:
    """Every row that a plain reader finds in any area, in order."""
    found = [f"{out}/{area}/**/*.parquet" for area in layout.AREAS if list((out / area).rglob("*.parquet"))]
    if not found:
        return []
    return sorted(duckdb.execute(f'SELECT log, "offset" FROM read_parquet({found})').fetchall())  # noqa: S608


def all_once(total: int) -> list[tuple[str, int]]:
    return [(log, offset) for log in ("even", "odd") for offset in range(total // 2)]


class Died(Exception):
    """The process is gone: from here on nothing changes the disk, no cleaning up either."""


class Mortal:
    """Lets everything that changes the disk fail from the n-th change on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1
        for name in ("make", "write", "rename", "delete", "sync"):
            monkeypatch.setattr(Files, name, self._counted(getattr(Files, name)))
        monkeypatch.setattr(room, "stage", self._counted(staging.stage))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: object, **named: object) -> object:
            if self.left == 0:
                raise Died
            self.left -= 1
            return call(*args, **named)

        return counted


def by_hand(spark: SparkSession, out: Path, batches: int) -> None:
    """Do what Spark does around the sink, without a stream: batches of five numbers of each log."""
    files, checkpoint = Files(spark, str(out)), out / layout.CHECKPOINT
    recover(files)
    known = load(files)
    if not (checkpoint / "metadata").exists():
        (checkpoint / "commits").mkdir(parents=True)
        (checkpoint / "offsets").mkdir()
        (checkpoint / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    check.check(files, Files(spark, str(checkpoint)), known)
    sink = room.Sink(files, Files(spark, str(checkpoint)), known, Numbers(0, 0), lambda _: None)
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", QUERY)
    for number in range(len(list((checkpoint / "commits").iterdir())), batches):
        ends = {log: Place(0, number * 5 + 5) for log in ("even", "odd")}
        (checkpoint / f"offsets/{number}").write_text(f"v1\n{{}}\n{json.dumps(ranges.to_json(ends))}")
        batch = Rows("memory")
        for log in ends:
            for offset in range(number * 5, number * 5 + 5):
                batch.add(made(log, offset), log, offset)
        sink(spark.createDataFrame(pa.Table.from_batches([batch.take()]), SOURCE_DDL), number)
        (checkpoint / f"commits/{number}").write_text("v1\n{}")


def dies(spark: SparkSession, out: Path) -> bool:
    """Whether the next batch died on its way. What there is to see then is there once."""
    try:
        by_hand(spark, out, 1)
    except Died:
        seen = rows(out)
        assert len(seen) == len(set(seen))
        return True
    return False


def test_every_point_at_which_it_may_die(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mortal = Mortal(monkeypatch)
    for point in range(100):
        out = tmp_path / f"died-{point}"
        mortal.left = point
        if not dies(spark, out):
            break
        mortal.left = 1  # and once more while the next run finishes or sweeps what the first one left
        dies(spark, out)
        mortal.left = -1
        by_hand(spark, out, 2)
        assert rows(out) == all_once(20), point
        assert list((out / "staging").iterdir()) == [], point
    assert 10 < point < 100


def test_a_query_begun_again_without_a_restart_finishes_its_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(room, "publish", dead)
        with pytest.raises(Died):
            by_hand(spark, tmp_path, 1)
    assert rows(tmp_path) == []
    monkeypatch.setitem(globals(), "recover", lambda _: None)
    by_hand(spark, tmp_path, 1)
    assert rows(tmp_path) == all_once(10)


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mirror of two batches; only for copies."""
    out = tmp_path_factory.mktemp("whole") / "out"
    mirror(spark, str(out), Numbers(20, 10))
    return out


@pytest.fixture
def out(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "out"))


def manifests(out: Path) -> list[Path]:
    return sorted(path for path in (out / "manifests").rglob("*.json") if path.parent.name != "snapshots")


def forget(out: Path, *names: str) -> None:
    """Take files out of the checkpoint, each with the sum that Hadoop keeps beside it."""
    for path in (out / "checkpoint" / name for name in names):
        path.unlink()
        (path.parent / f".{path.name}.crc").unlink()


def test_a_batch_that_spark_repeats_is_recognised(spark: SparkSession, out: Path) -> None:
    forget(out, "commits/1")
    before = sorted(out.glob("data/**/*.parquet"))
    mirror(spark, str(out), Numbers(20, 10))
    assert sorted(out.glob("data/**/*.parquet")) == before
    mirror(spark, str(out), Numbers(30, 10))
    assert rows(out) == all_once(30)


def test_a_repeated_batch_of_another_plan_is_refused(spark: SparkSession, out: Path) -> None:
    forget(out, "commits/1", "offsets/1")  # a power cut took both; what is planned now goes further
    with pytest.raises(CannotStart, match=r"plans other offsets for batch .* than its manifest holds"):
        mirror(spark, str(out), Numbers(30, 20))
    assert rows(out) == all_once(20)


def test_a_deleted_manifest_is_named(spark: SparkSession, out: Path) -> None:
    for gone in manifests(out):
        text = gone.read_text()
        gone.unlink()
        with pytest.raises(CannotStart, match=f"are gone: manifests/{gone.parent.name}/{gone.name}"):
            mirror(spark, str(out), Numbers(30, 10))
        gone.write_text(text)
    mirror(spark, str(out), Numbers(30, 10))
    assert rows(out) == all_once(30)


def test_a_manifest_that_is_cut_short_is_named(spark: SparkSession, out: Path) -> None:
    broken = manifests(out)[1]
    broken.write_text(broken.read_text()[:-10])
    with pytest.raises(CannotStart, match=f"manifests/.*/{broken.name} cannot be read"):
        mirror(spark, str(out), Numbers(20, 10))


def test_a_deleted_checkpoint_is_explained_and_resumed(spark: SparkSession, out: Path) -> None:
    shutil.rmtree(out / "checkpoint")
    with pytest.raises(CannotStart, match="run with --resume"):
        mirror(spark, str(out), Numbers(30, 10))
    assert rows(out) == all_once(20)
    mirror(spark, str(out), Numbers(30, 10), resume=True)
    assert rows(out) == all_once(30)
    mirror(spark, str(out), Numbers(40, 10))
    assert rows(out) == all_once(40)


def test_files_that_no_manifest_knows_stop_a_resume(spark: SparkSession, out: Path) -> None:
    shutil.rmtree(out / "checkpoint")
    manifests(out)[1].unlink()
    with pytest.raises(CannotStart, match="files that no manifest knows"):
        mirror(spark, str(out), Numbers(20, 10), resume=True)


def test_an_old_copy_of_a_checkpoint_doubles_nothing(
    spark: SparkSession, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(out / "checkpoint")
    monkeypatch.setattr("tests.mirror.numbers_job.check", lambda *_, **__: None)
    monkeypatch.setattr("tests.mirror.numbers_job.start", lambda _: {})
    with pytest.raises(CannotStart, match=r"holds some of what this batch would mirror, offsets 0 to \d+ of"):
        mirror(spark, str(out), Numbers(20, 10))
    assert rows(out) == all_once(20)


def test_another_mirror_in_the_same_folder_is_named(
    spark: SparkSession, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = check.start

    def other_comes(known: catalogue.Catalogue) -> object:
        (out / "manifests/another-query").mkdir()
        return started(known)

    monkeypatch.setattr("tests.mirror.numbers_job.start", other_comes)
    with pytest.raises(CannotStart, match="Another mirror, query another-query"):
        mirror(spark, str(out), Numbers(30, 10))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


def fill(ballast: Path) -> None:
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)) > 0:
            pass


def test_a_full_disk_stops_it_and_room_lets_it_go_on(spark: SparkSession, small_disk: Path) -> None:
    out = small_disk / "out"
    mirror(spark, str(out), Numbers(20, 10))
    ballast = small_disk / "ballast"
    fill(ballast)
    with pytest.raises(Exception, match=r"no room left|No space left") as caught:
        mirror(spark, str(out), Numbers(40, 20))
    assert "no room left" in str(caught.value) or "checkpoint" in str(caught.value)
    assert rows(out) == all_once(20)
    ballast.unlink()
    mirror(spark, str(out), Numbers(40, 20))
    assert rows(out) == all_once(40)
    assert list((out / "staging").iterdir()) == []


def test_a_folder_that_is_no_mirror_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(CannotStart, match="is no mirror: it holds photos"):
        mirror(spark, str(tmp_path), Numbers(20, 10))
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_manifests_are_rolled_up(spark: SparkSession, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "ROLL", 3)
    monkeypatch.setattr(catalogue, "KEPT", 1)
    before = load(Files(spark, str(out)))
    mirror(spark, str(out), Numbers(60, 10))
    files = Files(spark, str(out))
    after = load(files)
    assert len(keys(files)) < 6
    assert after.missing(next(iter(after.batches)), 5) == []
    assert before.files.keys() < after.files.keys()
    assert after.rows == 60
    assert {path for path, _ in files.list("data")} == {path for path in after.files if path.startswith("data/")}
    mirror(spark, str(out), Numbers(80, 10))
    assert rows(out) == all_once(80)


def test_what_is_not_published_yet_is_not_rolled_up(
    spark: SparkSession, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "KEPT", 0)
    files = Files(spark, str(out))
    first, second = keys(files)
    files.make(layout.staging(first))
    roll(files)
    assert keys(files) == [first]
    publish(files, from_json(files.read(layout.manifest(first)) or ""))
    roll(files)
    assert keys(files) == []
    assert second in load(files)
    assert load(files).rows == 20


def test_a_change_that_died_half_way_is_finished(spark: SparkSession, out: Path) -> None:
    files = Files(spark, str(out))
    old = next(path for path, _ in files.list("data"))
    new = f"{old.rpartition('/')[0]}/compacted.parquet"
    manifest = Manifest("compact/a-b-c", 1, adds=(File(new, 1, 1),), removes=(old,))
    files.make(f"{layout.staging(manifest.key)}/{new.rpartition('/')[0]}")
    shutil.copy(out / old, out / layout.staging(manifest.key) / new)
    write(files, manifest)
    before = rows(out)
    recover(files)
    assert files.exists(new)
    assert not files.exists(old)
    assert rows(out) == before
    recover(files)
    publish(files, manifest)
    assert rows(out) == before


def test_rubbish_is_swept_where_it_is_surely_nobodys(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, str(tmp_path))
    for name in ("ours-000000000001", "theirs-000000000001", "compact-x"):
        files.write(f"staging/{name}/data/x.parquet", "")
    recover(files, "ours")
    assert set(files.folders("staging")) == {"theirs-000000000001", "compact-x"}


def test_names_that_a_path_must_escape(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, str(tmp_path / "with space:and%41colon"))
    path = "data/destination=a%2Fb%3Ac ü/x.parquet"
    files.write(path, "ü€")
    assert files.read(path) == "ü€"
    assert files.list("") == [(path, 5)]
    assert files.list("nothing") == []
    assert files.read("nothing") is None
    files.make("data/other")
    assert files.rename(path, "data/other/y")
    assert not files.rename(path, "data/other/z")
    assert files.exists("data/other/y")
    files.delete("data")
    files.delete("data")
    assert not files.exists("data/other/y")
    assert [p.name for p in tmp_path.rglob("*") if p.suffix == ".crc"] == []


def test_a_manifest_is_replaced_whole(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, str(tmp_path))
    for committed in (1, 2):
        files.write("manifests/q/0.json", to_json(Manifest("q/0", committed)))
    assert from_json(files.read("manifests/q/0.json") or "").committed == 2
    assert [path for path, _ in files.list("")] == ["manifests/q/0.json"]
