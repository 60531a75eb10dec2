"""The in-memory source with a real bridge and a real Spark."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Final

import httpx
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.query import StreamingQuery

from bridge.errors import BackendUnavailable, CannotStart
from bridge.message import FIELDS, Message
from bridge.mirror.offsets import Gap, Ranges
from bridge.mirror.sources import OnDataLoss, Options
from bridge.mirror.sources.memory import MemorySource, _MemoryReader
from bridge.mirror.sources.range_source import DataLost, ReaderOptions, Splits
from bridge.mirror.sources.ranges import Split
from tests.launch import Bridge
from tests.unit.blocks import encode

Row = dict[str, Any]
VERSION: Final = {"x-oms-version": "1.0.0"}
GUARD: Final = 60.0


class Mirrored:
    """One checkpoint, and every row that came of it."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self.rows: list[Row] = []
        self.batches: list[list[Row]] = []
        self.fail = False
        self._spark = spark
        self._checkpoint = checkpoint

    def begin(self, source: MemorySource, start: dict[str, int] | None = None, **trigger: Any) -> StreamingQuery:  # noqa: ANN401 - Spark's
        writer = source.rows(self._spark, start or {}).writeStream.foreachBatch(self._take)
        return writer.option("checkpointLocation", str(self._checkpoint)).trigger(**trigger).start()

    def once(self, source: MemorySource, start: dict[str, int] | None = None) -> list[Row]:
        """Mirror all there is; return what was new."""
        known = len(self.rows)
        query = self.begin(source, start, availableNow=True)
        try:
            assert query.awaitTermination(GUARD)  # type: ignore[arg-type] # PySpark's check takes float
        finally:
            query.stop()
        return self.rows[known:]

    def offset(self, batch: int) -> str | None:
        """Return the source's offset as the checkpoint holds it."""
        file = self._checkpoint / "offsets" / str(batch)
        return file.read_text("utf-8").splitlines()[2] if file.exists() else None

    def planned(self, source: MemorySource) -> tuple[list[Ranges], list[Gap]]:
        """Return what every batch of the checkpoint covers, and every gap."""
        ranges: list[Ranges] = []
        gaps: list[Gap] = []
        before, batch = None, 0
        while (after := self.offset(batch)) is not None:
            ranges.append(source.moved(before, after))
            gaps += source.gaps(before, after)
            before, batch = after, batch + 1
        return ranges, gaps

    def _take(self, frame: DataFrame, _batch: int) -> None:
        rows = frame.toArrow().to_pylist()
        self.batches.append(rows)
        if self.fail:
            raise RuntimeError("as asked")
        self.rows += rows


@pytest.fixture
def mirrored(spark: SparkSession, tmp_path: Path) -> Mirrored:
    return Mirrored(spark, tmp_path / "checkpoint")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Bridge]]:
    started: list[Bridge] = []

    def serve(query: str = "", like: Bridge | None = None) -> Bridge:
        settings = {"OMS_LISTEN": like.url.partition("//")[2]} if like else {}
        settings["OMS_DELIVERY__MAX_DELIVERIES"] = "1"
        started.append(Bridge(tmp_path / f"b{len(started)}", backend=f"memory://?{query}", settings=settings))
        return started[-1]

    yield serve
    for bridge in started:
        bridge.__exit__(None, None, None)


def source_of(bridge: Bridge, on_data_loss: OnDataLoss = "fail", rows: int = 1000) -> MemorySource:
    return MemorySource(Options("memory://", "/none", bridge.url, on_data_loss=on_data_loss, rows=rows))


def produce(bridge: Bridge, destination: str, *bodies: str, **fields: str) -> None:
    for body in bodies:
        headers = VERSION | {"x-oms-h-destination": destination} | {f"x-oms-h-{k}": v for k, v in fields.items()}
        answer = httpx.post(f"{bridge.url}/v1/messages", headers=headers, content=body, trust_env=False)
        assert answer.status_code == 200, answer.text


def pull(bridge: Bridge, destination: str, count: int) -> None:
    for _ in range(count):
        headers = VERSION | {"x-oms-source": destination, "x-oms-consumerid": "g"}
        assert httpx.get(f"{bridge.url}/v1/messages", headers=headers, trust_env=False).status_code == 200


def bodies(rows: list[Row]) -> list[str]:
    return [row["body"].decode() for row in sorted(rows, key=lambda row: (row["log"], row["offset"]))]


def logs_of(rows: list[Row]) -> set[str]:
    return {row["log"] for row in rows}


def test_every_field_and_property_arrives(mirrored: Mirrored, serve: Callable[..., Bridge]) -> None:
    bridge = serve()
    fields = {
        field.name.lower(): "gzip" if field.name == "compression" else str(n) if field.maximum is not None else f"t{n}"
        for n, field in enumerate(FIELDS)
        if field.name not in {"destination", "compression", "delayTime", "expireTime", "qos", "durability"}
    } | {
        "partition": "3",
        "qos": "1",
        "durability": "1",
        "expiretime": "4102444800000",
        "delaytime": "0",
        "priority": "9",
    }
    headers = VERSION | {f"x-oms-h-{name}": value for name, value in fields.items()}
    headers |= {"x-oms-h-destination": "orders", "x-oms-p-region": "eu", "x-oms-p-n%61me*": "UTF-8''%C3%BC"}
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    headers |= {"content-type": "text/plain", "traceparent": trace, "tracestate": "a=b"}
    answer = httpx.post(f"{bridge.url}/v1/messages", headers=headers, content=b"\0\xff", trust_env=False)
    assert answer.status_code == 200, answer.text
    (row,) = mirrored.once(source_of(bridge))
    assert row["body"] == b"\0\xff"
    assert row["body_size"] == 2
    assert dict(row["properties"]) == {"region": "eu", "name": "ü"}
    assert (row["content_type"], row["traceparent"], row["tracestate"]) == ("text/plain", trace, "a=b")
    assert (row["area"], row["destination"], row["backend"], row["error"]) == ("data", "orders", "memory", None)
    assert row["log"].endswith("/orders/3")
    assert row["offset"] == int(answer.headers["x-oms-offset"])
    for field in FIELDS:
        name = field.name.lower()
        if name in {"storetimestamp", "storehost"}:
            want = answer.headers[f"x-oms-h-{name}"]
        elif name in {"destination", "deliverycount", "compression"}:
            continue
        else:
            want = fields[name]
        value = row[field.attribute]
        if field.name.endswith("Timestamp"):
            value = round(value.timestamp() * 1000)
        assert str(value) == want, name


@pytest.mark.extended
def test_each_message_once_in_batches_of_a_few(mirrored: Mirrored, serve: Callable[..., Bridge]) -> None:
    bridge = serve()
    source = source_of(bridge, rows=7)
    for number in range(10):
        produce(bridge, f"d{number % 3}", str(number), f"{number}x")
    mirrored.once(source)
    assert sorted(bodies(mirrored.rows)) == sorted([*map(str, range(10)), *(f"{n}x" for n in range(10))])
    assert max(len(batch) for batch in mirrored.batches) <= 7
    text = mirrored.offset(0)
    assert text is not None
    assert list(json.loads(text)) == sorted(json.loads(text))
    ranges, gaps = mirrored.planned(source)
    covered = Counter(
        (log, offset) for batch in ranges for log, (start, end) in batch.items() for offset in range(start, end)
    )
    assert covered == Counter((row["log"], row["offset"]) for row in mirrored.rows)
    assert gaps == []
    assert mirrored.once(source) == []
    assert {log: (first, end) for log, (first, end) in source.bounds().items() if end} == {
        log: (0, max(row["offset"] for row in mirrored.rows if row["log"] == log) + 1) for log in logs_of(mirrored.rows)
    }


def test_begins_where_it_is_told(mirrored: Mirrored, serve: Callable[..., Bridge]) -> None:
    bridge = serve("partitions=1")
    produce(bridge, "orders", "a", "b", "c")
    source = source_of(bridge)
    (log,) = source.bounds()
    assert bodies(mirrored.once(source, {log: 2})) == ["c"]
    assert mirrored.planned(source)[0] == [{log: (2, 3)}]


def test_delayed_once_when_due_and_dead_letters_in_their_area(mirrored: Mirrored, serve: Callable[..., Bridge]) -> None:
    bridge = serve("partitions=1")
    source = source_of(bridge)
    produce(bridge, "orders", "later", delaytime="500")
    produce(bridge, "orders", "poison")
    assert bodies(mirrored.once(source)) in (["poison"], ["poison", "later"])
    headers = VERSION | {
        "x-oms-source": "orders",
        "x-oms-consumerid": "g",
        "x-oms-ack": "true",
        "x-oms-waitmills": "9000",
    }
    with httpx.Client(base_url=bridge.url, trust_env=False, timeout=GUARD) as client:
        for _ in range(2):  # the first delivery of each is its last: see `serve`
            receipt = client.get("/v1/messages", headers=headers).headers["x-oms-receipt"]
            client.post("/v1/nack", headers=VERSION | {"x-oms-receipt": receipt})
        while "orders.dlq" not in {log.split("/")[1] for log, (_, end) in source.bounds().items() if end > 1}:
            assert client.get("/v1/messages", headers=headers | {"x-oms-waitmills": "100"}).status_code == 204
    mirrored.once(source)
    assert bodies([row for row in mirrored.rows if row["area"] == "data"]) == ["poison", "later"]
    dead = [row for row in mirrored.rows if row["area"] == "dead-letters"]
    assert sorted(bodies(dead)) == ["later", "poison"]
    assert {row["destination"] for row in dead} == {"orders.dlq"}


def test_a_restart_with_a_journal_goes_on_exactly(
    mirrored: Mirrored, serve: Callable[..., Bridge], tmp_path: Path
) -> None:
    journal = f"journal={tmp_path}/journal"
    bridge = serve(journal)
    produce(bridge, "orders", *map(str, range(20)))
    mirrored.once(source_of(bridge))
    produce(bridge, "orders", *map(str, range(20, 30)))
    bridge.kill()
    bridge = serve(journal)
    produce(bridge, "orders", *map(str, range(30, 40)))
    source = source_of(bridge)
    mirrored.once(source)
    assert sorted(map(int, bodies(mirrored.rows))) == list(range(40))
    assert mirrored.planned(source)[1] == []


@pytest.mark.extended
def test_a_restart_without_a_journal_is_a_loss_that_is_told(mirrored: Mirrored, serve: Callable[..., Bridge]) -> None:
    bridge = serve("partitions=1")
    produce(bridge, "orders", "a", "b")
    mirrored.once(source_of(bridge))
    (old,) = logs_of(mirrored.rows)
    produce(bridge, "orders", "never mirrored")
    bridge.kill()
    bridge = serve("partitions=1")
    produce(bridge, "orders", "c")
    source = source_of(bridge)
    with pytest.raises(StreamingQueryException) as raised:
        mirrored.once(source)
    assert not source.outage(raised.value)
    assert f"{old} from 2 on" in str(source.explain(raised.value))
    assert bodies(mirrored.once(source_of(bridge, "record"))) == ["c"]
    assert mirrored.planned(source)[1] == [Gap(old, 2, None)]
    assert mirrored.once(source) == []


@pytest.mark.extended
def test_a_full_backend_drops_and_the_gap_is_named(mirrored: Mirrored, serve: Callable[..., Bridge]) -> None:
    bridge = serve("partitions=1&max_messages=4")
    produce(bridge, "orders", "0", "1")
    mirrored.once(source_of(bridge))
    (log,) = logs_of(mirrored.rows)
    produce(bridge, "orders", "2", "3")
    pull(bridge, "orders", 4)
    produce(bridge, "orders", "4", "5", "6")
    source = source_of(bridge, "record")
    kept = source.bounds()[log]
    assert kept[0] > 2, "the backend has dropped what was not mirrored yet"
    with pytest.raises(StreamingQueryException) as raised:
        mirrored.once(source_of(bridge))
    assert f"{log} from 2 to {kept[0] - 1}" in str(source.explain(raised.value))
    assert bodies(mirrored.once(source)) == [str(n) for n in range(*kept)]
    assert mirrored.planned(source)[1] == [Gap(log, 2, kept[0])]


@pytest.mark.extended
def test_a_hole_in_the_middle_is_a_row_in_quarantine(mirrored: Mirrored, serve: Callable[..., Bridge]) -> None:
    bridge = serve("partitions=1&max_messages=3")
    produce(bridge, "orders", "0", "1", "2")
    headers = VERSION | {"x-oms-source": "orders", "x-oms-consumerid": "g", "x-oms-ack": "true"}
    receipts = [
        httpx.get(f"{bridge.url}/v1/messages", headers=headers, trust_env=False).headers["x-oms-receipt"]
        for _ in range(3)
    ]
    httpx.post(f"{bridge.url}/v1/ack", headers=VERSION | {"x-oms-receipt": receipts[1]}, trust_env=False)
    produce(bridge, "orders", "3")
    with pytest.raises(StreamingQueryException) as raised:
        mirrored.once(source_of(bridge))
    assert "/orders/0 from 1 to 1" in str(source_of(bridge).explain(raised.value))
    mirrored.once(source_of(bridge, "record"))
    found = sorted((row["offset"], row["area"], row["body"]) for row in mirrored.rows)
    assert found == [(0, "data", b"0"), (1, "gap", b""), (2, "data", b"2"), (3, "data", b"3")]


@pytest.mark.extended
def test_a_planned_range_is_read_again_as_it_was(mirrored: Mirrored, serve: Callable[..., Bridge]) -> None:
    bridge = serve()
    produce(bridge, "orders", *map(str, range(30)))
    mirrored.fail = True
    with pytest.raises(StreamingQueryException, match="as asked"):
        mirrored.once(source_of(bridge, rows=20))
    (first,) = mirrored.batches
    assert len(first) == 20
    produce(bridge, "orders", *map(str, range(30, 50)))
    mirrored.fail = False
    mirrored.once(source_of(bridge, rows=999))
    key = lambda row: (row["log"], row["offset"])  # noqa: E731 - it is said once
    assert sorted(mirrored.batches[1], key=key) == sorted(first, key=key)
    assert sorted(map(int, bodies(mirrored.rows))) == list(range(50))


@pytest.mark.extended
def test_a_bridge_that_is_away_is_waited_for(mirrored: Mirrored, serve: Callable[..., Bridge], tmp_path: Path) -> None:
    journal = f"partitions=1&journal={tmp_path}/journal"
    bridge = serve(journal)
    query = mirrored.begin(source_of(bridge), processingTime="0.2 seconds")
    try:
        produce(bridge, "orders", "before")
        until(query, lambda: bodies(mirrored.rows) == ["before"])
        bridge.kill()
        until(query, lambda: "last_error" in str(query.lastProgress))
        bridge = serve(journal, like=bridge)
        produce(bridge, "orders", "after")
        produce(bridge, "new", "made meanwhile")
        until(query, lambda: sorted(bodies(mirrored.rows)) == ["after", "before", "made meanwhile"])
    finally:
        query.stop()


def until(query: StreamingQuery, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GUARD
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.extended
def test_what_is_away_or_no_such_bridge_is_said(
    mirrored: Mirrored, serve: Callable[..., Bridge], spark: SparkSession
) -> None:
    bridge = serve()
    source = source_of(bridge)
    wrong = MemorySource(Options("memory://", "/none", bridge.management))
    with pytest.raises(CannotStart, match="answers 404 to the mirror"):
        wrong.bounds()
    with pytest.raises(StreamingQueryException) as raised:
        mirrored.once(wrong)
    assert "answers 404 to the mirror" in str(source.explain(raised.value))
    bridge.kill()
    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        source.bounds()
    with pytest.raises(StreamingQueryException) as raised:
        mirrored.once(source)
    assert source.outage(raised.value)
    assert source.explain(raised.value) is None
    assert spark.streams.active == []


def test_a_journal_that_was_set_back_is_noticed(serve: Callable[..., Bridge]) -> None:
    bridge = serve("partitions=1")
    produce(bridge, "orders", "a", "b", "c")
    reader = reading(bridge)
    (log,) = reader.bounds()
    assert reader.latestOffset({log: [0, 3, 3]}, ReadAllAvailable()) == {log: [0, 3, 3]}
    with pytest.raises(CannotStart, match=f"older copy of its journal: {log} ends at 3 and was mirrored up to 4"):
        reader.latestOffset({log: [0, 4, 4]}, ReadAllAvailable())
    reader.stop()


def test_a_range_is_read_to_its_end_and_what_is_not_there_is_told(
    serve: Callable[..., Bridge], subtests: pytest.Subtests
) -> None:
    bridge = serve("partitions=1")
    produce(bridge, "orders", "a", "b", "c")
    (log,) = source_of(bridge).bounds()
    for start, end, found in ((0, 5, [0, 1, 2]), (1, 3, [1, 2]), (2, 5, [2]), (1, 2, [1])):
        for name, offsets, missing in ((log, found, end > 3), ("dead/orders/0", [], True)):
            with subtests.test(msg=f"{name} from {start} to {end}"):
                told = f"{name} from {max(start, len(offsets) and 3)} to {end - 1}"
                splits = Splits((Split(name, start, end),))
                rows = [row for batch in reading(bridge, "record").read(splits) for row in batch.to_pylist()]
                assert [row["offset"] for row in rows if row["area"] == "data"] == offsets
                assert [row["error"] for row in rows if row["area"] == "gap"] == (
                    [f"dropped before it was read: {told}"] if missing else []
                )
                if missing:
                    with pytest.raises(DataLost, match=told):
                        list(reading(bridge, "fail").read(splits))


def test_a_log_of_large_headers_is_read_to_its_end(serve: Callable[..., Bridge]) -> None:
    """A block of these messages was 110 MB once, which the bridge refused each time."""
    bridge = serve("partitions=1")
    message = {"header": {"destination": "orders"}, "properties": {"p": "x" * 55_000}}
    for _ in range(29):
        answer = httpx.post(
            f"{bridge.url}/v1/messages", headers=VERSION, json=[message] * 70, trust_env=False, timeout=60
        )
        assert answer.status_code == 200, answer.text
    (log,) = source_of(bridge).bounds()
    offsets: list[int] = []
    for batch in reading(bridge).read(Splits((Split(log, 0, 2030),))):
        offsets += batch.column("offset").to_pylist()
        assert set(batch.column("error").to_pylist()) == {None}
    assert offsets == list(range(2030))


class _Narrow(BaseHTTPRequestHandler):
    """A bridge whose memory for this client has room for 100 messages, and none at all every third time."""

    asked: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        many = int(self.headers.get("x-oms-maxmessages", "0"))
        self.asked.append(many)
        start = int(self.headers.get("x-oms-offset", "0"))
        status, body, code = 200, b'{"logs": {"e/orders/0": [0, 3000]}}', ""
        if many > 100 or len(self.asked) % 3 == 0:
            status, body, code = 429, b"{}", "limit-reached"
        elif many:
            body = encode([Message("orders")] * many, range(start, start + many), start + many, [])
        self.send_response(status)
        for name, value in (("x-oms-error", code), ("retry-after", "5"), ("content-length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_it_asks_for_less_and_goes_on_when_the_bridge_has_no_memory_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.mirror.sources.memory.time.sleep", lambda _: None)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Narrow)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        reader = _MemoryReader(ReaderOptions(Options("memory://", "/none", url), {}, 1))
        offsets = [
            offset
            for batch in reader.read(Splits((Split("e/orders/0", 0, 3000),)))
            for offset in batch.column("offset").to_pylist()
        ]
        assert offsets == list(range(3000))
        assert max(_Narrow.asked) <= 2000
        _Narrow.asked[:] = [0, 0]
        with pytest.raises(BackendUnavailable, match="429 limit-reached"):
            reader.bounds()
        _Narrow.asked.clear()
        assert reader.bounds() == {"e/orders/0": (0, 3000)}
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def reading(bridge: Bridge, on_data_loss: OnDataLoss = "fail") -> _MemoryReader:
    return _MemoryReader(ReaderOptions(Options("memory://", "/none", bridge.url, on_data_loss=on_data_loss), {}, 1))


def test_an_address_that_is_none_is_refused() -> None:
    for address in ("", "127.0.0.1:8080", "ftp://x", "http://", "http://x:y", "http://x/path"):
        with pytest.raises(CannotStart, match="is not the address of a bridge"):
            MemorySource(Options("memory://", "/none", address))
