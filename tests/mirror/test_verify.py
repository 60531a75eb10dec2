"""`mirror verify` over a real mirror with each fault made on purpose."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from bridge.cli.program import main
from bridge.errors import CannotStart
from bridge.mirror.offsets import Gap, Ranges
from bridge.mirror.table import Table
from bridge.mirror.verify import Finding, evaluate
from bridge.mirror.verify_observations import gather
from tests.mirror.made import Bad, Batch, make_mirror, message, some

ODD = "a%b=c+d é/x [1]"
"""A destination as a native producer may call it."""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "mirror 1"


@pytest.fixture
def verified(out: Path) -> Callable[..., list[Finding]]:
    def run(bounds: Ranges | None = None, ledger: str | None = None, names: int | None = None) -> list[Finding]:
        asked = None if bounds is None else lambda: bounds
        return evaluate(gather(str(out), asked, ledger, names))

    return run


Verified = Callable[..., list[Finding]]


def found(findings: list[Finding]) -> list[tuple[str, str, int]]:
    return [(f.kind, f.subject, f.number) for f in findings]


def test_a_sound_mirror_of_both_tables(out: Path, verified: Verified) -> None:
    odd = {("odd/0", 7): message(7, ODD), ("orders.dlq/0", 0): message(0, "orders.dlq")}
    make_mirror(
        out, [Batch(some(5)), Batch(some(3, first=5) | odd | {("orders/0", 8): Bad("broken", b"\xff", "orders")})]
    )
    assert found(verified({"orders/0": (0, 9), "odd/0": (0, 8), "orders.dlq/0": (0, 1)})) == []


def test_files_missing_and_changed(out: Path, verified: Verified) -> None:
    for rows in (some(5), some(3, "audit"), some(4, "billing")):
        make_mirror(out, [Batch(rows)])
    files = {file.rows: out / "messages" / file.path for file in Table.require(str(out)).files()}
    orders, audit, billing = files[5], files[3], files[4]
    orders.unlink()
    audit.write_bytes(audit.read_bytes()[:-20])
    table = pq.read_table(billing, partitioning=None)
    pq.write_table(pa.concat_tables([table, table.slice(1, 1)]), billing)
    assert found(verified()) == [
        ("missing-file", str(orders.relative_to(out)), 5),
        *sorted(
            [
                ("changed-file", str(audit.relative_to(out)), 3),
                ("changed-file", str(billing.relative_to(out)), 1),
            ],
            key=lambda finding: finding[1],
        ),
    ]


def test_rows_doubled_and_uncovered_and_gaps(out: Path, verified: Verified) -> None:
    gap = Gap("audit/0", 0, 4)
    make_mirror(out, [Batch(some(5), ranges={"orders/0": (0, 3)}), Batch(some(2), {"audit/0": (0, 4)}, [gap])])
    findings = verified()
    assert found(findings) == [("doubled", "orders/0", 2), ("uncovered", "orders/0", 2), ("gap", "audit/0", 4)]
    assert findings[1].says == "has 2 rows that no commit covers, from 3 to 4"


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


def test_a_backend_that_first_tells_too_little_is_asked_again(out: Path) -> None:
    make_mirror(out, [Batch(some(5))])
    answers: list[Ranges] = [{"orders/0": (0, 3)}, {"orders/0": (0, 5)}]
    assert evaluate(gather(str(out), lambda: answers.pop(0), None, None)) == []


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
    before = found(verified(ledger=str(ledger)))
    ledger.write_text(ledger.read_text("utf-8"), "utf-8-sig")
    assert found(verified(ledger=str(ledger))) == before, "a byte order mark is no part of the first line"


def test_a_ledger_that_is_none(out: Path, tmp_path: Path, verified: Verified) -> None:
    make_mirror(out, [Batch(some(1))])
    with pytest.raises(CannotStart, match="there is no file"):
        verified(ledger=str(tmp_path / "none"))
    (tmp_path / "bad").write_text('{"messageId": "a"}\nnonsense\n{"id": 3}\n')
    with pytest.raises(CannotStart, match="2 lines"):
        verified(ledger=str(tmp_path / "bad"))


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"PAR1 rubbish PAR1")])
def test_a_damaged_file_is_one_sentence_of_every_command(
    out: Path, tmp_path: Path, damage: Callable[[Path], object], subtests: pytest.Subtests
) -> None:
    make_mirror(out, [Batch(some(4)), Batch(some(4, first=4))])
    damaged = next(out.glob("messages/date=*/*.parquet"))
    damage(damaged)
    (tmp_path / "ledger").write_text('{"messageId": "orders-1"}\n')
    commands = {
        "restore": ["--dry-run"],
        "report": ["--html", str(tmp_path / "report.html")],
        "prune": ["--keep", "1d", "--destination", "orders", "--area", "data"],
        "compact": [],
        "export": [],
        "query": ["SELECT * FROM messages"],
        "verify": ["--ledger", str(tmp_path / "ledger")],
    }
    for command, arguments in commands.items():
        with subtests.test(command):
            done = CliRunner().invoke(main, ["mirror", command, "--out", str(out), *arguments], catch_exceptions=False)
            assert (done.exit_code, damaged.name in done.output) == (1, True)
            assert command == "verify" or done.stderr.startswith("Error: ")
    assert done.stderr == "The ledger was not compared: messages cannot be read.\n"
    assert "ledger:" not in done.stdout


def test_where_there_is_no_mirror(verified: Verified) -> None:
    with pytest.raises(CannotStart, match="There is no mirror in"):
        verified()


def test_the_command(out: Path) -> None:
    def command(*arguments: str) -> Result:
        given = ["mirror", "verify", "--out", str(out), *arguments]
        return CliRunner().invoke(main, given, catch_exceptions=False)

    assert command().exit_code == 1
    make_mirror(out, [Batch(some(5))])
    well = command()
    assert (well.exit_code, well.stdout) == (0, "5 rows in 1 files of 1 logs\nno errors\n")
    make_mirror(out, [Batch(some(1), {})])
    wrong = command("--json")
    assert wrong.exit_code == 1
    assert [finding["kind"] for finding in json.loads(wrong.stdout)["findings"]] == ["doubled"]
