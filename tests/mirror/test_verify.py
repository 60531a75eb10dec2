"""`mirror verify` over a real mirror with each fault made on purpose."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from bridge.cli.program import main
from bridge.errors import CannotStart
from bridge.mirror import layout
from bridge.mirror.manifest import Gap, Manifest, Ranges, to_json
from bridge.mirror.sink.files import Files
from bridge.mirror.verify.facts import gather
from bridge.mirror.verify.judge import Finding, judge
from tests.mirror.made import QUERY, Bad, Batch, make_mirror, message, some

ODD = "a%b=c+d é/x [1]"
"""A destination as a native producer may call it."""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "mirror [1]"


@pytest.fixture
def verified(spark: SparkSession, out: Path) -> Callable[..., list[Finding]]:
    def run(bounds: Ranges | None = None, ledger: str | None = None, names: int | None = None) -> list[Finding]:
        asked = None if bounds is None else lambda: bounds
        return judge(gather(spark, Files(spark, str(out)), asked, ledger, names))

    return run


Verified = Callable[..., list[Finding]]


def found(findings: list[Finding]) -> list[tuple[str, str, int]]:
    return [(f.kind, f.subject, f.number) for f in findings]


def parquet(out: Path, area: str = "data") -> list[Path]:
    return sorted((out / area).rglob("*.parquet"))


def test_a_sound_mirror_of_all_areas(out: Path, verified: Verified) -> None:
    odd = {("odd/0", 7): message(7, ODD), ("orders.dlq/0", 0): message(0, "orders.dlq")}
    make_mirror(
        out, [Batch(some(5)), Batch(some(3, first=5) | odd | {("orders/0", 8): Bad("broken", b"\xff", "orders")})]
    )
    assert len(parquet(out)) == 3
    assert found(verified({"orders/0": (0, 9), "odd/0": (0, 8), "orders.dlq/0": (0, 1)})) == []


def test_files_missing_unknown_and_changed(out: Path, verified: Verified) -> None:
    make_mirror(out, [Batch(some(5)), Batch(some(3, "audit")), Batch(some(4, "billing")), Batch(some(2, ODD))])
    odd, audit, billing, orders = parquet(out)
    odd.unlink()
    shutil.copy(audit, audit.with_name("copy.parquet"))
    shutil.copy(audit, audit.with_name("_hidden.parquet"))
    table = pq.read_table(billing, partitioning=None)
    pq.write_table(pa.concat_tables([table, table.slice(1, 1)]), billing)
    orders.write_bytes(orders.read_bytes()[:-20])
    folder = audit.parent.relative_to(out)
    assert found(verified()) == [
        ("missing-file", str(odd.relative_to(out)), 2),
        ("changed-file", str(billing.relative_to(out)), 1),
        ("changed-file", str(orders.relative_to(out)), 5),
        ("unknown-file", f"{folder}/_hidden.parquet", 0),
        ("unknown-file", f"{folder}/copy.parquet", 3),
        ("doubled", "audit/0", 3),
        ("doubled", "billing/0", 1),
    ]


def test_rows_that_no_manifest_covers_and_holes_and_gaps(out: Path, verified: Verified) -> None:
    make_mirror(
        out,
        [
            Batch(some(5), ranges={"orders/0": (0, 3)}),
            Batch({}, ranges={"orders/0": (8, 9), "audit/0": (0, 4)}, gaps=[Gap("audit/0", 0, 4)]),
        ],
    )
    findings = verified()
    assert found(findings) == [("uncovered", "orders/0", 2), ("hole", "orders/0", 5), ("gap", "audit/0", 4)]
    assert findings[0].says == "has 2 rows that no manifest speaks of, from 3 to 4"
    assert findings[1].says == "was never mirrored from offset 3 to 7"


def test_what_the_backend_keeps(out: Path, verified: Verified) -> None:
    make_mirror(out, [Batch(some(5) | some(5, "a") | some(5, "b") | some(5, "c"))])
    bounds = {"orders/0": (0, 9), "a/0": (6, 9), "b/0": (0, 2), "new/0": (3, 4)}
    assert found(verified(bounds)) == [
        ("lost", "a/0", 1),
        ("restarted", "b/0", 3),
        ("behind", "new/0", 1),
        ("behind", "orders/0", 4),
        ("gone", "c/0", 0),
    ]


def test_a_backend_that_first_tells_too_little_is_asked_again(spark: SparkSession, out: Path) -> None:
    make_mirror(out, [Batch(some(5))])
    answers: list[Ranges] = [{"orders/0": (0, 3)}, {"orders/0": (0, 5)}]
    assert judge(gather(spark, Files(spark, str(out)), lambda: answers.pop(0), None, None)) == []


def test_a_ledger(out: Path, tmp_path: Path, verified: Verified) -> None:
    again = message(0)._replace(store_timestamp=message(99).store_timestamp)
    dead = {("orders.dlq/0", 0): message(3, "orders.dlq", message_id="orders-3")}
    make_mirror(out, [Batch(some(5) | some(2, ODD)), Batch({("orders/0", 5): again} | dead)])
    ledger = tmp_path / "ledger.ndjson"
    lines: list[dict[str, object]] = [
        {"messageId": "orders-0", "destination": "orders"},  # there twice
        {"messageId": "orders-1", "destination": "orders", "offset": 1},
        {"messageId": "orders-2"},
        {"messageId": "orders-3"},  # and a dead letter, which is no second one
        {"messageId": "orders-4", "destination": "audit"},  # elsewhere
        {"messageId": f"{ODD}-0", "destination": ODD},
        {"messageId": "lost-0"},
        {"messageId": "lost-1"},
        {"messageId": "lost-2"},
    ]
    ledger.write_text("".join(json.dumps(line) + "\n" for line in lines) + "\n")
    assert found(verified(ledger=str(ledger))) == [
        ("ledger-missing", "lost-0", 1),
        ("ledger-missing", "lost-1", 1),
        ("ledger-missing", "lost-2", 1),
        ("ledger-missing", "orders-4", 1),
        ("ledger-doubled", "orders-0", 1),
    ]
    assert len(verified(ledger=str(ledger), names=1)) == 2


def test_a_ledger_that_is_none(out: Path, tmp_path: Path, verified: Verified) -> None:
    make_mirror(out, [Batch(some(1))])
    with pytest.raises(CannotStart, match="there is no file"):
        verified(ledger=str(tmp_path / "none"))
    (tmp_path / "bad").write_text('{"messageId": "a"}\nnonsense\n{"id": 3}\n')
    with pytest.raises(CannotStart, match="2 lines"):
        verified(ledger=str(tmp_path / "bad"))


def test_what_is_committed_and_not_published_yet_is_only_behind(out: Path, verified: Verified) -> None:
    made = make_mirror(out, [Batch(some(2))])
    (file,) = parquet(out)
    staged = out / layout.staging(made[0].key) / made[0].adds[0].path
    staged.parent.mkdir(parents=True)
    file.rename(staged)
    assert found(verified()) == [("unpublished-file", made[0].adds[0].path, 2)]


def test_a_compaction_meanwhile_is_no_fault(spark: SparkSession, out: Path) -> None:
    """The files that were there at the first look are gone at the end of it; the second look finds others."""
    (manifest,) = make_mirror(out, [Batch(some(3))])
    (old,) = parquet(out)
    files = Files(spark, str(out))
    asked = []

    def compacting() -> Ranges:
        asked.append(1)
        if len(asked) == 1:
            new = old.with_name("compacted.parquet")
            (was,) = manifest.adds
            added = was._replace(path=str(new.relative_to(out)))
            change = Manifest("compact/1", manifest.committed + 1, adds=(added,), removes=(was.path,))
            (out / "manifests/compact").mkdir()
            (out / layout.manifest(change.key)).write_text(to_json(change))
            old.rename(new)
        return {}

    assert found(judge(gather(spark, files, compacting, None, None))) == [("gone", "orders/0", 0)]
    assert len(asked) == 2


def test_a_manifest_that_is_gone_is_missed_though_its_batch_was_empty(out: Path, verified: Verified) -> None:
    make_mirror(out, [Batch(some(2)), Batch({}), Batch(some(1, first=2))])
    (out / layout.manifest(layout.batch_key(QUERY, 1))).unlink()
    assert found(verified()) == [("missing-manifest", QUERY, 1)]


def test_where_there_is_no_mirror(verified: Verified) -> None:
    with pytest.raises(CannotStart, match="There is no mirror at"):
        verified()


@pytest.fixture
def command(spark: SparkSession, out: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    @contextmanager
    def joined(_name: str) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("bridge.mirror.session.session", joined)
    given = ["mirror", "verify", "--out", str(out)]
    return lambda *arguments: CliRunner().invoke(main, [*given, *arguments], catch_exceptions=False)


def test_the_command(out: Path, command: Callable[..., Result]) -> None:
    assert command().exit_code == 1
    make_mirror(out, [Batch(some(5))])
    well = command()
    assert (well.exit_code, well.stdout) == (0, "5 rows in 1 files of 1 logs\nall is well\n")
    (out / layout.manifest(layout.batch_key(QUERY, 0))).unlink()
    wrong = command("--json")
    assert wrong.exit_code == 1
    assert [finding["kind"] for finding in json.loads(wrong.stdout)["findings"]] == ["unknown-file", "uncovered"]
