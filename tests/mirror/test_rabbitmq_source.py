"""What bridges and natives store in RabbitMQ, as rows in Spark: each once, over restarts of everything."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from pika import BasicProperties
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bridge.client import Client
from bridge.errors import CannotStart
from bridge.message import Message
from bridge.mirror.offsets import Gap
from bridge.mirror.schema import MESSAGE, SOURCE
from bridge.mirror.sources import OnDataLoss, Options
from bridge.mirror.sources.rabbitmq.source import RabbitMQSource
from tests.brokers.provide import own_rabbitmq
from tests.launch import Bridge
from tests.mirror.rabbitmq_logs import GUARD, own, store, store_large, wait_until_served
from tests.rabbitmq import natives

NOW: Final = int(time.time() * 1000)


class Mirror:
    """A job that writes nothing: it keeps the rows of each batch, and what the sink would ask."""

    def __init__(self, spark: SparkSession, backend: str, checkpoint: Path, on_data_loss: OnDataLoss = "fail") -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self.source = RabbitMQSource(Options(backend, "", on_data_loss=on_data_loss))
        self.rows: list[Row] = []

    def once(self) -> list[Row]:
        """Read what there is."""
        before = len(self.rows)
        query = self._start(availableNow=True)
        try:
            query.awaitTermination(int(GUARD))
            assert not query.isActive
        finally:
            query.stop()
        return self.rows[before:]

    @contextmanager
    def running(self) -> Iterator[StreamingQuery]:
        query = self._start(processingTime="100 milliseconds")
        try:
            yield query
        finally:
            query.stop()

    def wait(self, query: StreamingQuery, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + GUARD
        while not enough():
            assert query.isActive, str(query.exception())
            assert time.monotonic() < deadline, len(self.rows)
            time.sleep(0.05)

    def _start(self, **trigger: Any) -> StreamingQuery:  # noqa: ANN401 - handed on
        rows = self.source.rows(self._spark, {})
        assert rows.columns == SOURCE.names
        writer = rows.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(self._checkpoint))
        return writer.trigger(**trigger).start()

    def _keep(self, batch: DataFrame, _number: int) -> None:
        self.rows += batch.collect()

    def covered(self, query: StreamingQuery) -> Counter[str]:
        """Ask the source how many offsets of each log the batches of a query covered."""
        total: Counter[str] = Counter()
        for before, after in _offsets(query):
            total.update({log: end - start for log, (start, end) in self.source.moved(before, after).items()})
        return total

    def gaps(self, query: StreamingQuery) -> list[Gap]:
        """Ask it what was gone."""
        return [gap for before, after in _offsets(query) for gap in self.source.gaps(before, after)]


def _offsets(query: StreamingQuery) -> list[tuple[str | None, str]]:
    found = []
    for progress in query.recentProgress:
        (source,) = progress["sources"]
        before = source["startOffset"]
        if (after := source["endOffset"]) not in {None, "null", before}:
            found.append((None if before in {None, "null"} else before, after))
    return found


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def new() -> str:
    return f"d{uuid4().hex[:8]}"


def bodies(rows: Sequence[Row]) -> list[bytes]:
    return sorted(bytes(row["body"]) for row in rows)


FULL: Final = {
    "born_timestamp": NOW,
    "born_host": "10.0.0.1",
    "message_key": "schlüssel",
    "correlation_id": "c" * 300,
    "trace_id": "0af7651916cd43dd8448eb211c80319c",
    "transaction_id": "t-1",
    "expire_time": NOW + 3_600_000,
    "priority": 7,
    "durability": 1,
    "content_type": "application/json",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "vendor=1",
    "properties": {"tenant": "grün", "empty": "", "x" * 200: "y" * 1000},
}


def test_every_field_once_and_then_only_what_is_new(
    spark: SparkSession, rabbitmq_url: str, checkpoint: Path, tmp_path: Path
) -> None:
    backend, d, long = own(rabbitmq_url, partitions=2), new(), new() + "l" * 240
    mirror = Mirror(spark, backend, checkpoint)
    full = Message(d, bytes(range(256)), message_id="full", **FULL)  # type: ignore[arg-type] # by name

    async def produce(url: str) -> Any:  # noqa: ANN401 - a receipt
        async with Client(url) as client:
            receipt = await client.produce(full)
            for each in (
                Message(d, b"delayed", message_id="delayed", delay_time=300),
                Message(long, b"long", message_id="long"),
            ):
                await client.produce(each)
            taken = {(await client.pull(d, "late", wait_ms=20_000)).message.message_id for _ in range(2)}  # type: ignore[union-attr]
            assert taken == {"full", "delayed"}
            assert await client.pull(f"{d}.dlq", "late") is None  # creates it; only the bridge itself produces to it
            return receipt

    with Bridge(tmp_path / "bridge", backend=backend) as bridge:
        receipt = asyncio.run(produce(bridge.url))
    native = BasicProperties(headers={"colour": "red", "n": 3}, message_id="native", timestamp=NOW // 1000)
    natives.write(rabbitmq_url, d, [natives.Sent(b"native", "any.key", native)])
    natives.write(rabbitmq_url, f"{d}.dlq", [natives.Sent(b"dead", "any.key", BasicProperties(message_id="dead"))])

    rows = {row["message_id"]: row.asDict() for row in mirror.once()}
    assert len(mirror.rows) == 5
    assert {name: (row["area"], row["destination"]) for name, row in rows.items()} == {
        "full": ("data", d),
        "delayed": ("data", d),
        "long": ("data", long),
        "dead": ("dead-letters", f"{d}.dlq"),
        "native": ("data", d),
    }
    said = full._replace(
        partition=receipt.partition, store_timestamp=receipt.store_timestamp, store_host=receipt.store_host
    )
    for column in MESSAGE:
        wanted, value = getattr(said, column.name), rows["full"][column.name]
        if wanted is None and column.name in {"qos", "delivery_count", "compression", "delay_time"}:
            continue  # the engine fills some of them in
        seen = int(value.timestamp() * 1000) if column.kind == "timestamp" else value
        assert (column.name, bytes(seen) if column.kind == "binary" else seen) == (column.name, wanted)
    assert (rows["full"]["body_size"], rows["full"]["backend"], rows["full"]["log"]) == (256, "rabbitmq", f"{d}.log")
    assert (rows["delayed"]["delay_time"], rows["native"]["partition"]) == (300, 0)
    assert rows["native"]["properties"] == {"colour": "red", "n": "3", "amqp_routing_key": "any.key"}
    assert int(rows["native"]["store_timestamp"].timestamp()) == NOW // 1000

    assert mirror.once() == []
    store(backend, d, [b"after"])
    assert bodies(Mirror(spark, backend, checkpoint).once()) == [b"after"]


def test_new_destinations_while_it_runs(spark: SparkSession, rabbitmq_url: str, checkpoint: Path) -> None:
    backend, d, e = own(rabbitmq_url), new(), new()
    mirror = Mirror(spark, backend, checkpoint)
    with mirror.running() as query:  # before there is a book
        store(backend, d, [b"1"])
        mirror.wait(query, lambda: len(mirror.rows) == 1)
        store(backend, e, [b"2", b"3"])
        mirror.wait(query, lambda: len(mirror.rows) == 3)
        mirror.wait(query, lambda: sum(mirror.covered(query).values()) == 3)
        assert mirror.covered(query) == {f"{d}.log": 1, f"{e}.log": 2}
    assert bodies(mirror.rows) == [b"1", b"2", b"3"]


@pytest.mark.extended
def test_a_log_that_was_cut_off(spark: SparkSession, rabbitmq_url: str, checkpoint: Path) -> None:
    backend, d = own(rabbitmq_url, log_bytes=1_000_000), new()
    store_large(backend, d, 2)
    assert len(Mirror(spark, backend, checkpoint).once()) == 2
    store_large(backend, d, 30)
    strict = Mirror(spark, backend, checkpoint)
    with pytest.raises(StreamingQueryException) as failure:
        strict.once()
    said = strict.source.explain(failure.value)
    assert said is not None
    assert f"{d}.log from 2 to " in said
    assert not strict.source.outage(failure.value)
    lenient = Mirror(spark, backend, checkpoint, "record")
    with lenient.running() as query:
        lenient.wait(query, lambda: bool(lenient.rows) and lenient.rows[-1]["body"].startswith(b"29 "))
        lenient.wait(query, lambda: bool(lenient.gaps(query)))
        (gap,) = lenient.gaps(query)
    assert gap.start == 2
    assert min(row["offset"] for row in lenient.rows) == gap.end
    assert {row["area"] for row in lenient.rows} == {"data"}


@pytest.mark.extended
def test_a_broker_that_is_killed_and_comes_back(spark: SparkSession, checkpoint: Path, tmp_path: Path) -> None:
    with own_rabbitmq(tmp_path / "rabbit") as rabbit:
        backend, d = own(rabbit.url), new()
        mirror = Mirror(spark, backend, checkpoint)
        first = [b"%d" % number for number in range(3_000)]
        store(backend, d, first)
        with mirror.running() as query:
            mirror.wait(query, lambda: bool(mirror.rows))
            rabbit.kill()
            rabbit.start()
            wait_until_served(backend, d)
            store(backend, d, [b"last"])
            mirror.wait(query, lambda: any(row["body"] == b"last" for row in mirror.rows))
    assert bodies(mirror.rows) == sorted([*first, b"last"])


def test_a_wrong_login_or_virtual_host_stops_the_start(
    spark: SparkSession, rabbitmq_url: str, subtests: pytest.Subtests
) -> None:
    for old, new_text, said in (
        ("guest:guest", "guest:wr0ng-secret", "does not accept this user and password"),
        ("%2F", "nowhere", "no such virtual host"),
    ):
        with subtests.test(msg=said):
            backend = own(rabbitmq_url.replace(old, new_text))
            with pytest.raises(CannotStart, match=said) as refusal:
                RabbitMQSource(Options(backend, "")).rows(spark, {})
            assert "wr0ng" not in str(refusal.value)
