"""Ranges of real streams, planned and read as Spark would, without Spark."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pika
import pytest

from adapters.rabbitmq.mapping import from_arrival
from adapters.rabbitmq.options import parse
from adapters.rabbitmq.topology import names
from bridge.errors import BackendUnavailable, CannotStart
from bridge.mirror.sources import Options, ranges
from bridge.mirror.sources.rabbitmq import end_offsets as rabbitmq_ends
from bridge.mirror.sources.rabbitmq import source as rabbitmq_reader
from bridge.mirror.sources.rabbitmq.catalogue import BlockingConnection
from bridge.mirror.sources.rabbitmq.source import RabbitMQSource
from bridge.mirror.sources.range_source import DataLost
from tests.brokers.provide import own_rabbitmq
from tests.brokers.rabbitmq import RabbitMQ
from tests.mirror.rabbitmq_logs import (
    GUARD,
    Row,
    join_late,
    own,
    plan,
    planning,
    read,
    reader_of,
    store,
    store_large,
    wait_until_served,
)
from tests.rabbitmq import natives


def source_of(backend: str) -> RabbitMQSource:
    return RabbitMQSource(Options(backend, ""))


def bodies(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def new(prefix: str = "d") -> str:
    return f"{prefix}{uuid4().hex[:8]}"


def test_the_end_is_exact_and_a_range_reads_the_same_again(rabbitmq_url: str) -> None:
    backend, d = own(rabbitmq_url), new()
    with planning(backend) as reader:
        assert plan(reader) == {}
        before: dict[str, Any] = {}
        total = 0
        for count in (1, 99, 100, 101, 5_000):
            store(backend, d, bodies(count, total))
            total += count
            after = plan(reader, before)
            assert after == {f"{d}.log": [0, total, total]}
            assert json.dumps(plan(reader, after)) == json.dumps(after)
            first, second = read(reader, before, after), read(reader, before, after)
            assert sorted(int(row["body"]) for row in first) == list(range(total - count, total))
            assert first == second
            before = after


def test_the_end_is_never_too_high_and_comes_while_much_is_written(rabbitmq_url: str) -> None:
    backend, d = own(rabbitmq_url), new()
    store(backend, d, bodies(1))
    writing = threading.Thread(target=store, args=(backend, d, *(bodies(500) for _ in range(20))))
    seen: list[int] = []
    with planning(backend) as reader:
        place = plan(reader)
        writing.start()
        while writing.is_alive():
            place = plan(reader, place)
            seen.append(place[f"{d}.log"][1])
        writing.join()
        place = plan(reader, place)
        assert place == {f"{d}.log": [0, 10_001, 10_001]}
        assert len(read(reader, {}, place)) == 10_001
    assert len(set(seen)) > 3


def test_a_probe_is_detached_while_the_rest_of_its_chunk_arrives(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pika rejects messages of a cancelled consumer, and RabbitMQ ends the connection for a rejection of a stream."""
    backend, d = own(rabbitmq_url), new()
    store(backend, d, bodies(2_000))
    monkeypatch.setattr("asyncio.selector_events._SelectorSocketTransport.max_size", 1_000)  # bytes of one read

    async def detach() -> bool:
        probes = await rabbitmq_ends.Probes.open(await connection.link(), 1)
        for _ in range(5):
            (probe,) = await probes.attach([names.log(d)], "first")
            for _ in range(5):  # the first chunks are small
                probes.acknowledge()
                await probes.settled()
            probes.acknowledge()
            while not probes.out_of_credit(probe):  # noqa: ASYNC110 - the first piece of the chunk is enough
                await asyncio.sleep(0)
            await probes.detach([probe])
        return (await connection.link()).up

    with closing(BlockingConnection(parse(backend), "test")) as connection:
        assert connection.run(detach())


def test_a_limit_shares_out_and_nothing_is_left(rabbitmq_url: str) -> None:
    backend, d, e = own(rabbitmq_url), new(), new()
    store(backend, d, bodies(250))
    store(backend, e, bodies(30))
    with planning(backend) as reader:
        place: dict[str, Any] = {}
        rows = []
        for _ in range(10):
            after = plan(reader, place, 100)
            rows += read(reader, place, after)
            place = after
    assert sorted(int(row["body"]) for row in rows if row["destination"] == d) == list(range(250))
    assert len(rows) == 280


def test_a_long_name_comes_from_the_book(rabbitmq_url: str) -> None:
    backend, d = own(rabbitmq_url), new("l" * 240)
    assert names.log(d) != f"{d}.log"
    store(backend, d, bodies(3))
    with planning(backend) as reader:
        rows = read(reader, {}, plan(reader))
    assert {(row["destination"], row["log"], row["backend"]) for row in rows} == {(d, names.log(d), "rabbitmq")}


def test_partitions_of_natives_and_marks(rabbitmq_url: str) -> None:
    backend, d = own(rabbitmq_url, partitions=4), new()
    store(backend, d, bodies(8))
    keys = ("p3", "p9", "eu.p2", "", "p03", "größe", "p")
    natives.write(rabbitmq_url, d, [natives.Sent(key.encode(), key) for key in keys])
    join_late(backend, d)
    store(backend, d, [b"after"])
    with planning(backend) as reader:
        after = plan(reader)
        rows = read(reader, {}, after)
    assert after[f"{d}.log"][1] > 16  # the marks have offsets, and are no rows
    partitions = {row["body"].decode(): row["partition"] for row in rows}
    assert {key: partitions[key] for key in keys} == dict(zip(keys, (3, 0, 2, 0, 0, 0, 0), strict=True))
    assert {partitions[str(n)] for n in range(8)} == {0, 1, 2, 3}
    assert len(rows) == 16
    assert {row["area"] for row in rows} == {"data"}


def test_a_mark_at_the_end_of_a_range(rabbitmq_url: str) -> None:
    backend, d = own(rabbitmq_url), new()
    store(backend, d, bodies(2))
    join_late(backend, d)
    with planning(backend) as reader:
        after = plan(reader)
        assert len(read(reader, {}, after)) == 2
        assert plan(reader, after) == after


def test_a_header_without_a_value_is_null_and_an_empty_body_is_empty(rabbitmq_url: str) -> None:
    backend, d = own(rabbitmq_url), new()
    store(backend, d, [b""])
    headers = {"void": None, "empty": "", "text": "x"}
    sent = natives.Sent(b"", "p0", pika.BasicProperties(headers=headers))
    natives.write(rabbitmq_url, d, [sent, sent._replace(properties=pika.BasicProperties())])
    with planning(backend) as reader:
        rows = sorted(read(reader, {}, plan(reader)), key=lambda row: int(row["offset"]))
    assert [(row["body"], row["body_size"]) for row in rows] == [(b"", 0)] * 3
    assert dict(rows[1]["properties"]) == {"void": None, "empty": "", "text": "x"}


@pytest.mark.parametrize("millis", [253_402_300_800_000, 9_000_000_000_000_000], ids=["year 10000", "the largest"])
def test_a_time_that_no_reader_can_show_is_kept_as_a_number(rabbitmq_url: str, millis: int) -> None:
    backend, d = own(rabbitmq_url), new()
    store(backend, d)
    natives.write(rabbitmq_url, d, [natives.Sent(b"x", "p0", pika.BasicProperties(timestamp=millis))])
    with planning(backend) as reader:
        (row,) = read(reader, {}, plan(reader))
    assert (row["area"], row["body"], row["born_timestamp"]) == ("data", b"x", None)
    assert dict(row["properties"]) == {"oms_born_timestamp": str(millis), "oms_store_timestamp": str(millis)}


def test_what_cannot_be_read_is_a_row_in_quarantine(rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, d = own(rabbitmq_url), new()
    store(backend, d, [b"good", b"bad", b"fine"])
    real = from_arrival

    def broken(arrival: Any, destination: str, partition: int) -> Any:  # noqa: ANN401 - as the one it stands for
        if arrival.body == b"bad":
            raise OverflowError("what it says of itself")
        return real(arrival, destination, partition)

    monkeypatch.setattr(rabbitmq_reader, "from_arrival", broken)
    with planning(backend) as reader:
        rows = read(reader, {}, plan(reader))
    assert [(row["area"], row["body"]) for row in sorted(rows, key=lambda row: str(row["body"]))] == [
        ("quarantine", b"bad"),
        ("data", b"fine"),
        ("data", b"good"),
    ]
    (bad,) = (row for row in rows if row["area"] == "quarantine")
    assert (bad["error"], bad["destination"]) == ("OverflowError: what it says of itself", d)


def test_destinations_without_a_log_are_named(rabbitmq_url: str, tmp_path: Path) -> None:
    said, silent, gone, good = tmp_path / "said.yaml", new(), new(), new()
    said.write_text(f"{silent}: {{log: false}}\n")
    backend = own(rabbitmq_url, destinations=said)
    store(backend, silent)
    for d in (gone, good):
        store(backend, d, bodies(1))
    with natives.channel(rabbitmq_url) as channel:
        channel.queue_delete(f"{gone}.log")
    source = source_of(backend)
    assert source.unmirrored() == {silent: rabbitmq_ends.NO_LOG, gone: rabbitmq_ends.NOT_THERE}
    assert source.bounds() == {f"{good}.log": (0, 1)}


def test_an_exchange_of_others_is_mirrored_where_it_has_a_log(rabbitmq_url: str, tmp_path: Path) -> None:
    said, d, exchange = tmp_path / "said.yaml", new(), natives.exchange_of(rabbitmq_url, "topic")
    said.write_text(f"{d}: {{exchange: {exchange}}}\n")
    backend = own(rabbitmq_url, destinations=said)
    store(backend, d, bodies(1))
    natives.write(rabbitmq_url, exchange, [natives.Sent(b"native", "eu.p3")])
    with planning(backend) as reader:
        rows = read(reader, {}, plan(reader))
    assert {(row["body"], row["destination"], row["partition"]) for row in rows} == {(b"0", d, 0), (b"native", d, 0)}


def test_what_was_cut_off_while_nobody_read_is_a_gap(rabbitmq_url: str) -> None:
    backend, d = own(rabbitmq_url, log_bytes=1_000_000), new()
    store_large(backend, d, 2)
    with planning(backend) as reader:
        early = plan(reader)
    store_large(backend, d, 30)
    with planning(backend) as reader, pytest.raises(DataLost, match=f"{d}.log from 2 to "):
        plan(reader, early)
    with planning(backend, "record") as reader:
        after = plan(reader, early)
        (gap,) = ranges.gaps(ranges.from_json(early), ranges.from_json(after))
        rows = read(reader, early, after)
    assert gap.log == f"{d}.log"
    assert gap.start == 2
    assert gap.end is not None
    assert min(row["offset"] for row in rows) == gap.end
    # each file of a small log begins with an offset that no message has: not one of those is taken for a loss
    numbers = [int(row["body"].split()[0]) for row in rows]
    assert numbers == list(range(numbers[0], 30))
    assert {row["area"] for row in rows} == {"data"}


def test_what_was_cut_off_after_it_was_planned_is_named_by_the_reader(rabbitmq_url: str) -> None:
    backend, d = own(rabbitmq_url, log_bytes=1_000_000), new()
    store_large(backend, d, 4)
    with planning(backend) as strict, planning(backend, "record") as lenient:
        after = plan(strict)
        assert plan(lenient) == after
        store_large(backend, d, 30)
        with pytest.raises(DataLost, match=f"{d}.log from 0 to "):
            read(strict, {}, after)
        (row,) = read(lenient, {}, after)
    assert source_of(backend).moved(None, json.dumps(after)) == {f"{d}.log": (0, after[f"{d}.log"][1])}
    assert (row["area"], row["destination"], row["offset"]) == ("gap", d, 0)
    assert "dropped before it was read" in row["error"]


def test_a_stream_that_was_deleted_and_made_anew_is_another_log(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq_reader, "RECREATED_AFTER", 0.0)
    backend, d = own(rabbitmq_url), new()
    store(backend, d, bodies(5))
    with planning(backend) as reader:
        early = plan(reader)
    with natives.channel(rabbitmq_url) as channel:
        channel.queue_delete(f"{d}.log")
    store(backend, d, bodies(3, 100))
    unread = {f"{d}.log": [0, 4, 5]}
    with planning(backend) as reader, pytest.raises(DataLost, match=f"{d}.log from 4 on"):
        plan(reader, unread)
    with planning(backend) as reader:
        place, rows = early, []
        for _ in range(3):
            after = plan(reader, place)
            rows += read(reader, place, after)
            place = after
    assert place == {f"{d}.log": [0, 5, 5, 5, None], f"{d}.log#1": [0, 3, 3]}
    first, last = json.dumps(early), json.dumps(place)
    assert source_of(backend).moved(first, last) == {f"{d}.log#1": (0, 3)}
    assert source_of(backend).gaps(first, last) == [], "all that was known to be there was read"
    assert (source_of(backend).moved(last, last), source_of(backend).gaps(last, last)) == ({}, [])
    store(backend, d, bodies(1))
    with planning(backend) as reader:  # the end of the first is remembered, and reported once
        after = plan(reader, place)
        assert after == {f"{d}.log": [0, 5, 5, 5, None], f"{d}.log#1": [0, 4, 4]}
        assert [row["body"] for row in read(reader, place, after)] == [b"0"]
    assert [(int(row["body"]), row["log"], row["offset"]) for row in rows] == [
        (100 + n, f"{d}.log#1", n) for n in range(3)
    ]


def test_a_stream_that_was_made_anew_and_is_longer_than_before_is_another_log(rabbitmq_url: str) -> None:
    backend, d = own(rabbitmq_url), new()
    store(backend, d, bodies(5))
    with planning(backend, "record") as reader:
        place = plan(reader)
        rows: list[Row] = []
        with natives.channel(rabbitmq_url) as channel:
            channel.queue_delete(f"{d}.log")
        store(backend, d, bodies(8, 100))
        until = time.monotonic() + GUARD
        while len(rows) < 8 and time.monotonic() < until:
            after = plan(reader, place)
            rows += read(reader, place, after)
            place = after
        assert plan(reader, place) == place
    assert place == {f"{d}.log": [0, 5, 5, 5, None], f"{d}.log#1": [0, 8, 8]}
    assert sorted(int(row["body"]) for row in rows) == list(range(100, 108))


def test_a_stream_that_is_deleted_while_it_is_watched(rabbitmq_url: str) -> None:
    backend, d = own(rabbitmq_url), new()
    store(backend, d, bodies(5))
    with planning(backend, "record") as reader:
        early = plan(reader)
        with natives.channel(rabbitmq_url) as channel:
            channel.queue_delete(f"{d}.log")
        after = early
        while after == early:  # first it is no more than an outage
            after = plan(reader, early)
        assert after == {f"{d}.log": [0, 5, 5, 5, None]}
        assert plan(reader, after) == after


def test_without_the_book_nothing_is_taken_for_gone(rabbitmq_url: str) -> None:
    backend, d = own(rabbitmq_url), new()
    store(backend, d, bodies(5))
    with planning(backend) as reader:
        early = plan(reader)
    with natives.channel(rabbitmq_url) as channel:
        channel.queue_delete(f"{backend.partition('prefix=')[2]}book")
    with planning(backend) as reader:
        assert plan(reader, early) == early
        with pytest.raises(CannotStart, match=f"{d}.log is planned, but the bridges' catalogue stream"):
            reader.partitions({}, early)


def test_a_range_that_never_fills_ends(rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbitmq_reader, "_IDLE", 0.1)
    monkeypatch.setattr(rabbitmq_reader, "_SHORT_FOR", 0.3)
    backend, d = own(rabbitmq_url), new()
    store(backend, d, bodies(5))
    with planning(backend, "record") as reader:
        after = plan(reader)
        rows = read(reader, {}, {f"{d}.log": [0, 9, 9]})
        assert after == {f"{d}.log": [0, 5, 5]}
    assert [(row["area"], row["offset"]) for row in rows] == [("gap", 5), *(("data", n) for n in range(5))]
    with planning(backend) as reader, pytest.raises(DataLost, match=f"{d}.log from 5 to 8"):
        read(reader, {}, {f"{d}.log": [0, 9, 9]})


def test_an_empty_stream_is_no_news_and_its_first_message_is(rabbitmq_url: str) -> None:
    backend, d = own(rabbitmq_url), new()
    store(backend, d)
    with planning(backend) as reader:
        assert plan(reader) == {}
        store(backend, d, [b"first"])
        assert plan(reader) == {f"{d}.log": [0, 1, 1]}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with own_rabbitmq(tmp_path_factory.mktemp("own") / "rabbit") as rabbit:
        yield rabbit


@pytest.mark.parametrize("late", ["catalogue", "log"])
def test_a_stream_whose_process_answers_late_is_not_taken_for_empty(broker: RabbitMQ, late: str) -> None:
    """The broker answers a new consumer before the stream's process has said what there is."""
    backend, d = own(broker.url), new()
    store(backend, d, bodies(3))
    queue = f"{d}.log" if late == "log" else f"{backend.partition('prefix=')[2]}book"
    slow = "sys:install(Pid, {fun(State, _, _) -> timer:sleep(250), State end, none})"
    find = f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{queue}">>))'
    broker.ctl("eval", f"{find}, #{{leader_pid := Pid}} = amqqueue:get_type_state(Q), ok = {slow}.")
    with planning(backend) as reader:
        assert plan(reader) == {f"{d}.log": [0, 3, 3]}


@pytest.mark.extended
def test_who_may_only_read_is_enough(broker: RabbitMQ) -> None:
    backend, d = own(broker.url), new()
    store(backend, d, bodies(3))
    broker.ctl("add_user", "reader", "secret")
    broker.ctl("set_permissions", "reader", "^$", "^$", ".*")
    reading = backend.replace(broker.url, broker.url_of(user="reader", password="secret"))  # noqa: S106 - of a test
    with planning(reading) as reader:
        assert len(read(reader, {}, plan(reader))) == 3
    broker.ctl("set_permissions", "reader", "^$", "^$", ".*book")
    with planning(reading) as reader, pytest.raises(CannotStart, match=f"{d}.log: .*permission to read"):
        plan(reader)


@pytest.mark.extended
def test_a_broker_that_is_killed_while_it_is_read(broker: RabbitMQ, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, d = own(broker.url), new()
    store(backend, d, bodies(20_000))
    with planning(backend) as reader:
        after = plan(reader)
        (first, *others) = reader.partitions({}, after)
        reading = reader_of(backend).read(first)
        rows = next(reading).to_pylist()
        broker.kill()
        assert plan(reader, after) == after  # an outage is no news
        assert "last_error" in reader.reportLatestOffset()
        broker.start()
        wait_until_served(backend, d)
        for batch in reading:
            rows += batch.to_pylist()
        for other in others:
            for batch in reader_of(backend).read(other):
                rows += batch.to_pylist()
        assert sorted(int(row["body"]) for row in rows) == list(range(20_000))
        store(backend, d, bodies(10))
        place = after
        while place == after:
            place = plan(reader, after)
        assert place == {f"{d}.log": [0, 20_010, 20_010]}
        broker.kill()  # and stays away
        monkeypatch.setattr(rabbitmq_reader, "_PATIENCE", 0.5)
        with pytest.raises(BackendUnavailable):
            read(reader, after, place)
    with pytest.raises(BackendUnavailable):
        source_of(backend).bounds()
