"""The one table of columns, and the page that shows it."""

import re
from pathlib import Path

import pyarrow as pa

from bridge.message import FIELDS
from bridge.mirror.schema import ARROW, COLUMNS, PARTITION, SCHEMA_VERSION, SPARK, STATISTICS, TABLE

PAGE = Path(__file__).parents[3] / "docs" / "mirror-schema.md"

FROZEN = {
    "destination": "string",
    "message_id": "string",
    "born_timestamp": "timestamp",
    "born_host": "string",
    "qos": "bigint",
    "compression": "string",
    "partition": "bigint",
    "store_timestamp": "timestamp",
    "store_host": "string",
    "message_key": "string",
    "correlation_id": "string",
    "trace_id": "string",
    "transaction_id": "string",
    "delay_time": "bigint",
    "expire_time": "bigint",
    "priority": "bigint",
    "durability": "bigint",
    "delivery_count": "bigint",
    "content_type": "string",
    "traceparent": "string",
    "tracestate": "string",
    "properties": "map<string,string>",
    "body": "binary",
    "body_size": "bigint",
    "backend": "string",
    "log": "string",
    "offset": "bigint",
    "error": "string",
    "mirrored_timestamp": "timestamp",
    "schema_version": "int",
    "date": "string",
}


def test_version_1_is_frozen() -> None:
    """Columns may be added behind these, with a higher version; a change of one of these breaks every reader."""
    assert [(column.name, SPARK[column.kind]) for column in TABLE][: len(FROZEN)] == list(FROZEN.items())
    assert PARTITION == "date"


def test_version_2_has_one_more() -> None:
    assert [(column.name, SPARK[column.kind]) for column in TABLE][len(FROZEN) :] == [("json", "string")]
    assert SCHEMA_VERSION == 2


def test_every_field_of_the_specification_has_one_column() -> None:
    assert {field.attribute for field in FIELDS} <= set(COLUMNS)
    assert len(COLUMNS) == len(set(COLUMNS))
    assert set(STATISTICS) < set(COLUMNS)


def test_both_vocabularies_of_types_are_whole() -> None:
    assert ARROW.keys() == SPARK.keys() == {column.kind for column in TABLE}
    assert all(isinstance(kind, pa.DataType) for kind in ARROW.values())


def test_the_page_shows_the_table() -> None:
    shown = re.findall(r"^\| `(\w+)` \| (\S+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert shown == [(column.name, SPARK[column.kind], column.says) for column in TABLE]
