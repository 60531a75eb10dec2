"""The column `json`: which bodies it holds, and that no reader's JSON functions fail at one that it holds."""

import ast
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bridge.cli.program import main
from bridge.message import Message
from bridge.mirror.json_text import is_json, json_text
from bridge.mirror.query import connect
from bridge.mirror.restore import Selection, in_order, select
from bridge.mirror.schema import BATCH_BYTES, JSON, TABLE_SCHEMA, Rows
from bridge.mirror.table import MESSAGES, NAMES, Table, create, location, spark_path
from tests.mirror import made
from tests.mirror.jvm import need_jars
from tests.mirror.made import NOON, Bad, Batch, make_mirror, message
from tests.mirror.numbers_job import Numbers, mirror
from tests.mirror.readers import by_delta_rs, by_duckdb, by_pandas, by_spark

PAGE: Final = Path(__file__).parents[2] / "docs" / "mirror-schema.md"
TEXTS: Final[Mapping[str, bytes]] = {
    "object": b'{"customer": "customer-7", "total": 12.50}',
    "spaces": b' \t\r\n{"customer" : "customer-7"}\n',
    "array": b'[1, {"customer": "customer-7"}]',
    "number": b"-0.5e-7",
    "text": b'"customer-7"',
    "null": b"null",
    "unicode": '{"customer": "Zoë 😀 \uffff\x7f"}'.encode(),
    "escapes": rb'{"customer": "\u00eb \ud83d\ude00 \u0000 \/ \" \\"}',
    "the same key twice": b'{"customer": "customer-7", "customer": "customer-8"}',
    "empty key": b'{"": 1, "customer": ""}',
    "large number": b'{"customer": 123456789012345678901234567890}',
    "many decimals": b'{"customer": 0.12345678901234567890123456789}',
    "more than a double": b'{"customer": 1e400, "n": -1e-400}',
    "more than 1,000 digits": b'{"customer": %s}' % (b"9" * 2000),
    "deep": b'{"customer": %s%s}' % (b"[" * 500, b"]" * 500),
    "long": b'{"customer": "%s"}' % (b"x" * 2_000_000),
}
"""Bodies that are JSON, as they stand."""
NO_TEXTS: Final[Mapping[str, bytes]] = {
    "empty": b"",
    "spaces only": b" ",
    "not a number": b'{"customer": NaN}',
    "infinity": b'{"customer": -Infinity}',
    "half of a surrogate pair": rb'{"customer": "\ud83d"}',
    "the other half": rb'{"customer": "\ude00"}',
    "half, encoded": b'{"customer": "\xed\xa0\xbd"}',
    "no UTF-8": b'{"customer": "\xff"}',
    "UTF-16": '{"customer": 1}'.encode("utf-16"),
    "trailing comma": b'{"customer": [1,],}',
    "comment": b'{"customer": 1} // one',
    "single quotes": b"{'customer': 1}",
    "control character": b'{"customer": "a\nb"}',
    "unknown escape": rb'{"customer": "\x41"}',
    "leading zero": b'{"customer": 01}',
    "truncated": b'{"customer": "customer-7"',
    "two texts": b'{"customer": 1}\n{"customer": 2}',
    "zero byte behind": b'{"customer": 1}\0',
    "very deep": b"[" * 100_000 + b"]" * 100_000,
    "compressed": b"\x1f\x8b\x08\x00",
    "no JSON": b"customer-7",
}
BOM: Final = b"\xef\xbb\xbf"


def test_the_media_types_of_json(subtests: pytest.Subtests) -> None:
    json_types = (
        *(
            "application/json",
            "APPLICATION/JSON",
            "text/json",
            "application/json; charset=utf-8",
            "application/json ;x",
        ),
        *(" application/problem+json", "application/vnd.shop.order.v2+json;v=2", "application/cloudevents-batch+JSON"),
    )
    others = (
        *(None, "", "json", "+json", "application/", "application/octet-stream", "text/plain; a=application/json"),
        *("application/jsonp", "application/json-seq", "application/x-ndjson", "application/x+jsonx", "x/a b+json"),
    )
    for media_type in (*json_types, *others):
        with subtests.test(media_type=media_type):
            assert is_json(media_type) == (media_type in json_types)


def test_a_body_that_parses_is_its_text(subtests: pytest.Subtests) -> None:
    for name, body in TEXTS.items():
        with subtests.test(name):
            assert json_text("application/json", body) == body.decode()
            assert json_text("application/json", BOM + body) == body.decode()
            assert json_text("text/plain", body) is None
    for name, body in NO_TEXTS.items():
        with subtests.test(name):
            assert json_text("application/json", body) is None


def test_a_batch_counts_text_that_it_holds_twice() -> None:
    rows = Rows("memory")
    half = b'"%s"' % (b"x" * (BATCH_BYTES // 2))
    rows.add(Message("a", half), "x", 0)
    assert not rows.full
    rows.add(Message("a", half[:100], content_type="application/json"), "x", 1)
    assert not rows.full
    rows.take()
    rows.add(Message("a", half, content_type="application/json"), "x", 0)
    assert rows.full


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """All of these bodies as JSON, one as plain text, one in quarantine."""
    bodies = {**TEXTS, **NO_TEXTS, "byte order mark": BOM + TEXTS["object"]}
    rows: dict[tuple[str, int], Message | Bad] = {
        ("orders/0", n): message(n, message_id=name, body=body, content_type="application/json; charset=utf-8")
        for n, (name, body) in enumerate(bodies.items())
    }
    rows["orders/0", 100] = message(100, message_id="plain", body=TEXTS["object"], content_type="text/plain")
    rows["orders/0", 101] = Bad("broken", TEXTS["object"], "orders")
    make_mirror(tmp_path, [Batch(rows)])
    return tmp_path


CUSTOMERS: Final = {"object", "spaces", "byte order mark"}
"""Messages whose customer is customer-7 for every reader; of a key that is there twice, each takes what it likes."""


@pytest.mark.extended
@pytest.mark.usefixtures("quick_jvm")
def test_every_reader_reads_the_same_json_and_fails_at_none(out: Path, spark: SparkSession) -> None:
    columns = ["message_id", "json"]
    expected = sorted(
        [
            *((name, body.decode()) for name, body in TEXTS.items()),
            *((name, None) for name in NO_TEXTS),
            ("byte order mark", TEXTS["object"].decode()),
            ("plain", None),
        ],
        key=repr,
    )
    assert by_delta_rs(out, columns=columns) == expected
    assert by_duckdb(out, columns=columns) == expected
    assert by_pandas(out, columns=columns) == expected
    assert by_spark(spark, out, columns=columns) == expected
    assert {row[1] for row in by_delta_rs(out, "quarantine", columns)} == {None}

    customers = {name: found - {"the same key twice"} for name, found in _customers(out, spark).items()}
    assert customers == dict.fromkeys(customers, CUSTOMERS)


def _customers(out: Path, spark: SparkSession) -> dict[str, set[str]]:
    """Ask each reader, in each way, for the messages whose customer is customer-7; all rows are parsed for it."""
    found = {}
    asked = "SELECT message_id FROM messages WHERE ({}) = 'customer-7'"
    with duckdb.connect() as connection:
        connection.register("messages", Table.require(str(out)).dataset())
        for sql in ("json->>'customer'", "json_extract_string(json, '$.customer')", "json::JSON->>'customer'"):
            found[f"duckdb {sql}"] = {row[0] for row in connection.execute(asked.format(sql)).fetchall()}
        [(wrong,)] = connection.execute("SELECT count(*) FROM messages WHERE NOT json_valid(json)").fetchall()
        assert wrong == 0
    printed = CliRunner().invoke(
        main, ["mirror", "query", "--out", str(out), "--json", asked.format("json->>'customer'")]
    )
    found["query"] = {json.loads(line)["message_id"] for line in printed.stdout.splitlines()}
    frame = spark.read.format("delta").load(spark_path(str(out), MESSAGES))
    for sql in ("get_json_object(json, '$.customer')", "from_json(json, 'customer STRING').customer"):
        found[f"spark {sql}"] = {row[0] for row in frame.where(f"{sql} = 'customer-7'").select("message_id").collect()}
    lazy = pl.scan_delta(f"{out}/{MESSAGES}").filter(pl.col("json").str.json_path_match("$.customer") == "customer-7")
    found["polars"] = set(lazy.collect()["message_id"])
    return found


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A mirror as version 1 has made it: without the column, with one batch."""
    with pytest.MonkeyPatch.context() as patch:
        before = TABLE_SCHEMA.remove(TABLE_SCHEMA.get_field_index(JSON.name))
        patch.setattr("bridge.mirror.table.TABLE_SCHEMA", before)
        patch.setattr(made, "COLUMNS", before.names)
        patch.setattr(made, "SCHEMA_VERSION", 1)
        make_mirror(tmp_path, [Batch({("orders/0", n): _order(n) for n in range(4)})])
    assert CliRunner().invoke(main, ["mirror", "export", "--out", str(tmp_path)]).exit_code == 0
    return tmp_path


def _order(number: int) -> Message:
    return message(number, body=b'{"customer": "customer-%d"}' % (number % 2), content_type="application/json")


def test_a_table_of_version_1_gets_the_column_at_its_end(old: Path) -> None:
    before = {name: Table.require(str(old), name).delta.version() for name in NAMES}
    record = Table.require(str(old)).record()
    for _ in range(2):
        create(str(old))
        for name in NAMES:
            table = Table.require(str(old), name)
            assert table.delta.version() == before[name] + 1
            assert pa.schema(table.delta.schema().to_arrow()).names == TABLE_SCHEMA.names
            assert next(iter(table.commits())).record == (record if name == MESSAGES else None)
    assert Table.require(str(old)).record() == record
    assert {row[0] for row in by_delta_rs(old, columns=["json"])} == {None}


def test_another_programs_table_is_left_as_it_is(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.string())])
    DeltaTable.create(location(str(tmp_path), MESSAGES), schema)
    create(str(tmp_path))
    assert pa.schema(Table.require(str(tmp_path)).delta.schema().to_arrow()) == schema


@pytest.mark.extended
@pytest.mark.usefixtures("quick_jvm")
def test_a_job_goes_on_with_a_table_of_version_1(old: Path, spark: SparkSession) -> None:
    need_jars()
    mirror(spark, str(old), Numbers(200, 100), resume=True)
    columns = ["schema_version", "json"]
    found = {by_delta_rs(old, columns=columns)[0], by_delta_rs(old, columns=columns)[-1]}
    assert found == {(1, None), (2, None)}
    assert by_spark(spark, old, columns=columns) == by_duckdb(old, columns=columns) == by_delta_rs(old, columns=columns)


@pytest.mark.extended
@pytest.mark.usefixtures("quick_jvm")
def test_old_and_new_rows_are_read_compacted_erased_and_exported_together(old: Path, spark: SparkSession) -> None:
    make_mirror(old, [Batch({("orders/0", n): _order(n) for n in range(4, 10)}, mirrored=NOON + 120_000)])

    def check(texts: list[str | None]) -> None:
        expected = sorted(((text,) for text in texts), key=repr)
        for found in (by_delta_rs(old, columns=["json"]), by_duckdb(old, columns=["json"])):
            assert found == expected
        assert by_spark(spark, old, columns=["json"]) == expected
        assert len(pl.scan_delta(f"{old}/{MESSAGES}").select("json").collect()) == len(expected)
        with connect(str(old)) as connection:
            select(connection, Selection(), {})
            assert len(list(in_order(connection))) == len(expected)
        assert "no errors" in run("verify")

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(main, ["mirror", arguments[0], "--out", str(old), *arguments[1:]])
        assert done.exit_code == 0, done.output
        return done.stdout

    news = [f'{{"customer": "customer-{n % 2}"}}' for n in range(4, 10)]
    check([None] * 4 + news)
    run("compact")
    assert len(list(Table.require(str(old)).files())) == 1
    check([None] * 4 + news)
    run("export")
    erased = run("prune", "--where", "json->>'customer' = 'customer-1'", "--vacuum-now")
    assert "3 rows in 1 days deleted." in erased
    check([None] * 4 + news[::2])
    files = f"read_parquet('{old}/parquet/**/*.parquet', hive_partitioning = true, union_by_name = true)"
    counted = duckdb.execute(f"SELECT json, count(*) FROM {files} GROUP BY ALL ORDER BY ALL").fetchall()  # noqa: S608
    assert counted == [(news[0], 3), (None, 4)]
    assert run("export") == "There is nothing to export.\n"
    for path in (old / "parquet").rglob("*.parquet"):
        assert not {text for text in _texts(path) if text is not None} - {news[0]}


def _texts(path: Path) -> list[Any]:
    file = pq.ParquetFile(path)
    return file.read([JSON.name])[JSON.name].to_pylist() if JSON.name in file.schema_arrow.names else []


@pytest.mark.usefixtures("quick_jvm")
def test_the_examples_of_the_page_agree(tmp_path: Path, spark: SparkSession) -> None:
    orders = [("customer-7", "12.50"), ("customer-8", "3.1"), ("customer-7", "0.05")]
    bodies = [b'{"customer": "%s", "total": %s}' % (name.encode(), total.encode()) for name, total in orders]
    rows: dict[tuple[str, int], Message | Bad] = {
        ("orders/0", n): message(n, body=body, content_type="application/json") for n, body in enumerate(bodies)
    }
    make_mirror(tmp_path, [Batch(rows)])
    expected = [("customer-7", Decimal("12.55")), ("customer-8", Decimal("3.10"))]
    sql, in_polars, in_spark = re.findall(r"```(?:sql|python)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)

    with connect(str(tmp_path)) as connection:
        assert connection.execute(sql).fetchall() == expected
    at = f"{tmp_path}/{MESSAGES}"
    assert _run(in_polars.replace("/srv/mirror/messages", at), polars=pl).rows() == expected
    query = in_spark.replace("/srv/mirror/messages", at).replace(".show()", "")
    assert [tuple(row) for row in _run(query, spark=spark).collect()] == expected


def _run(program: str, **names: object) -> Any:  # noqa: ANN401 - of a library without types
    """Return the value of a program's last statement."""
    *before, last = ast.parse(program).body
    assert isinstance(last, ast.Expr)
    exec(compile(ast.Module(before, []), "page", "exec"), names)  # noqa: S102 - ours
    return eval(compile(ast.Expression(last.value), "page", "eval"), names)  # noqa: S307
