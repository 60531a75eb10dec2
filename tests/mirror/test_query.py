"""SQL over a mirror, by the command and by DuckDB: what it finds, how it prints, what it must not be able to do."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bridge.cli.program import main
from bridge.errors import CannotStart
from bridge.mirror.query import run_query
from tests.mirror.made import NOON, Bad, Batch, make_mirror, message, some

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    place = tmp_path / "it's 1*"
    bytes_body = message(7, body=b"\xff\x00", properties={"a": "b"}, trace_id="t-1", delay_time=5)
    loud = message(8, body=b"\x1b[31m[red]", traceparent=f"00-{TRACE}-00f067aa0ba902b7-01")
    make_mirror(
        place,
        [
            Batch(some(5) | {("007/0", 0): message(0, "007", message_id="seven")}),
            Batch({("orders/0", 7): bytes_body, ("orders/0", 8): loud}),
            Batch({("orders.dlq/0", 0): bytes_body._replace(destination="orders.dlq", delivery_count=3)}),
            Batch({("orders/0", 9): Bad("broken", b"\xfe", "orders")}),
        ],
    )
    return place


def run(out: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["mirror", "query", "--out", str(out), *arguments])


def lines(out: Path, *arguments: str) -> list[dict[str, object]]:
    result = run(out, "--json", *arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_views_have_every_column_of_its_type(out: Path) -> None:
    counts = "SELECT (SELECT count(*) FROM messages) m, (FROM (SELECT count(*) FROM dead_letters)) d, count(*) q"
    assert lines(out, f"{counts} FROM quarantine") == [{"m": 9, "d": 1, "q": 1}]
    found = {row["column_name"]: row["column_type"] for row in lines(out, "DESCRIBE messages")}
    assert (found["destination"], found["date"], found["offset"]) == ("VARCHAR", "VARCHAR", "BIGINT")
    assert (found["store_timestamp"], found["body"]) == ("TIMESTAMP WITH TIME ZONE", "BLOB")
    assert lines(out, "SELECT message_id FROM messages WHERE destination = '007'") == [{"message_id": "seven"}]


def test_an_empty_mirror_has_no_rows_and_all_columns(tmp_path: Path) -> None:
    make_mirror(tmp_path, [])
    assert lines(tmp_path, "SELECT * FROM messages") == []
    assert len(lines(tmp_path, "DESCRIBE quarantine")) == len(lines(tmp_path, "DESCRIBE messages")) > 25
    assert lines(tmp_path, "SELECT sum(body_size) s FROM messages WHERE properties['a'] = 'b'") == [{"s": None}]


def test_the_mirror_is_read_as_it_was(out: Path) -> None:
    counts = "SELECT (SELECT count(*) FROM messages) m, (SELECT count(*) FROM quarantine) q"
    assert lines(out, "--as-of", "1", counts) == [{"m": 6, "q": 0}]
    assert lines(out, "--as-of", "2999-01-01", counts) == [{"m": 9, "q": 1}]
    assert "has no version of 9" in run(out, "--as-of", "9", counts).stderr
    assert run(out, "--as-of", "yesterday", counts).exit_code == 2
    assert run(out, "").stderr.startswith("Error: The query failed: ")
    make_mirror(out, [Batch({("orders/0", 10): Bad("broken", b"\xfe", "orders")})])
    assert lines(out, "--as-of", "4", counts) == [
        {"m": 9, "q": 0}
    ]  # the version of the next batch, not yet its second commit
    assert lines(out, "--as-of", "5", counts) == [{"m": 9, "q": 1}]
    now = datetime.now(UTC).astimezone(timezone(timedelta(hours=14))).isoformat()
    assert lines(out, "--as-of", now, counts) == [{"m": 9, "q": 2}]
    old = "has no version of 2001-01-01 00:00:00+00:00: the oldest is of "
    assert old in run(out, "--as-of", "2001-01-01", counts).stderr


def test_json_holds_everything(out: Path) -> None:
    (row,) = lines(out, 'SELECT body, properties, store_timestamp, priority FROM messages WHERE "offset" = 7')
    assert row == {
        "body": {"base64": "/wA="},
        "properties": {"a": "b"},
        "store_timestamp": "2025-11-21T12:00:07.005000Z",
        "priority": None,
    }
    odd = "SELECT 1.5 d, DATE '2025-01-02' t, 1::HUGEINT h,"
    odd += " 'nan'::DOUBLE n, [1, NULL] l, {'x': 'ü'::VARCHAR} s, MAP {1: 'a'} m"
    assert lines(out, odd) == [
        {"d": 1.5, "t": "2025-01-02", "h": 1, "n": "nan", "l": [1, None], "s": {"x": "ü"}, "m": {"1": "a"}}
    ]


def test_a_table_holds_no_escape_sequences_and_no_markup(out: Path) -> None:
    result = run(out, 'SELECT body, message_id FROM messages WHERE "offset" IN (7, 8) ORDER BY ALL')

    assert "\x1b" not in result.stdout
    assert "\\x1b[31m[red]" in result.stdout
    assert "(2 bytes that are not text; --json prints them)" in result.stdout


def test_a_message_id_shows_the_message_and_its_dead_letter(out: Path) -> None:
    result = run(out, "--message-id", "orders-7")

    assert result.exit_code == 0
    shown = [line.split(maxsplit=1) for line in result.stdout.splitlines() if line]
    assert [value for name, value in shown if name == "table"] == ["messages", "messages"]
    assert ["properties", '{"a": "b"}'] in shown
    assert ["delivery_count", "3"] in shown
    assert [row["destination"] for row in lines(out, "--message-id", "orders-7")] == ["orders", "orders.dlq"]


def test_a_trace_is_found_by_its_id_and_by_traceparent(out: Path) -> None:
    assert [row["offset"] for row in lines(out, "--trace-id", "t-1")] == [7, 0]
    assert [row["offset"] for row in lines(out, "--trace-id", TRACE.upper())] == [8]


def test_what_is_not_there_is_said_with_status_3(out: Path) -> None:
    result = run(out, "--message-id", "x' OR true --")

    assert (result.exit_code, result.stdout) == (3, "")
    assert "no such message" in result.stderr


def test_a_limit_is_kept_and_said(out: Path) -> None:
    result = run(out, "SELECT message_id FROM messages ORDER BY 1", "--limit", "2")

    assert "orders-1" in result.stdout
    assert "orders-2" not in result.stdout
    assert "Only the first 2 rows are shown" in result.stderr
    assert "Only" in run(out, "FROM range(101)").stderr
    assert "Only" not in run(out, "FROM range(100)").stderr
    assert len(lines(out, "FROM range(2500)")) == 2500
    assert len(lines(out, "FROM range(2500)", "--limit", "1500")) == 1500


def everything(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in place.rglob("*") if path.is_file()}


FORBIDDEN = (
    "COPY (SELECT 1) TO '{place}/x.parquet'",
    "WITH c AS (COPY (SELECT 1) TO '{file}') SELECT 1",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{place}/x.parquet'",
    "SELECT 1; COPY (SELECT 1) TO '{place}/x.parquet'",
    "FROM query('WITH c AS (COPY (SELECT 1) TO ''{place}/x.parquet'') SELECT 1')",
    "ATTACH '{place}/x.db'",
    "EXPORT DATABASE '{place}/x'",
    "SET enable_external_access = true",
    "INSTALL httpfs",
    "LOAD httpfs",
    "FROM read_text('{secret}')",
    "FROM read_blob('{file}')",
    "FROM glob('/etc/*')",
    "FROM '{secret}'",
    "SELECT * FROM read_csv('{secret}')",
    "FROM 'https://127.0.0.1:1/x.parquet'",
)


def test_a_query_can_neither_write_nor_read_elsewhere(out: Path, subtests: pytest.Subtests) -> None:
    secret = out.parent / "secret.csv"
    secret.write_text("a\n1\n")
    file = next(out.rglob("*.parquet"))
    places = {"place": out, "file": file, "secret": secret}
    quoted = {name: str(place).replace("'", "''") for name, place in places.items()}
    for sql in FORBIDDEN:
        with subtests.test(msg=sql):
            before = everything(out.parent)
            result = run(out, sql.format(**quoted))
            assert (result.exit_code, result.stdout) == (1, ""), result.output
            assert result.stderr.startswith("Error: ")
            assert everything(out.parent) == before


def test_what_a_program_holds_is_not_a_table(out: Path) -> None:
    import pandas as pd  # noqa: PLC0415 - what the query must not see

    mine = pd.DataFrame({"a": [1]})
    with pytest.raises(CannotStart, match="mine"), run_query(str(out), "SELECT * FROM mine") as answer:
        list(answer.rows)
    assert len(mine) == 1


def test_a_wrong_query_is_one_sentence(out: Path, subtests: pytest.Subtests) -> None:
    cases = {
        "SELEC 1": "syntax error",
        "SELECT nope FROM messages": 'column "nope" not found',
        "FROM nowhere": "nowhere does not exist",
        "SELECT error(message_id) FROM messages": "Invalid Input Error",
        "SELECT CASE WHEN range > 2000 THEN error('late') END FROM range(9000)": "late",
    }
    for sql, sentence in cases.items():
        with subtests.test(msg=sql):
            result = run(out, "--json", sql)
            assert result.exit_code == 1
            assert sentence in json.loads(result.stderr)["detail"]


def test_a_folder_that_is_no_mirror_is_said_to_be_so(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        assert "There is no mirror in" in run(place, "SELECT 1").stderr


def test_a_path_may_be_a_uri_or_relative(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(out.parent)
    for place in (out.as_uri(), out.name):
        with run_query(place, "SELECT count(*) FROM messages") as answer:
            assert list(answer.rows) == [(9,)]


def test_one_thing_is_asked_at_a_time(out: Path) -> None:
    asked: list[list[str]] = [[], ["SELECT 1", "--message-id", "x"], ["--message-id", "x", "--trace-id", "y"]]
    assert [run(out, *arguments).exit_code for arguments in asked] == [2, 2, 2]


def test_names_that_look_like_numbers_are_names(tmp_path: Path) -> None:
    make_mirror(tmp_path, [Batch({("007/0", 0): message(0, "2026-1-1", store_timestamp=NOON - 4 * 3_600_000)})])

    assert lines(tmp_path, "SELECT destination d, date FROM messages") == [{"d": "2026-1-1", "date": "2025-11-21"}]
