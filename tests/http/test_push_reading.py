"""Readers of push streams that read little, stop reading, or have said all they will ever say."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.http.asking import VERSION, Pair, fresh, pull, store
from tests.http.conftest import Start
from tests.http.streaming import EVENTS, LINES, Plain, Streams, bodies_of, fill, gauges, load, take_one, wait_until
from tests.launch import Bridge

KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20
BODY = 64 * KIBIBYTE
BACKLOG = 1024  # 64 MiB


LATER_FALSE = pytest.param(False, marks=pytest.mark.extended)


@pytest.fixture
def alone(start: Start) -> Bridge:
    """Return a bridge whose counts only this file's tests move, and that one test at a time may fill."""
    return start("memory://?max_bytes=2000000000", OMS_TIMEOUTS__BODY="29997")


def numbered(count: int, size: int) -> Iterable[bytes]:
    return (b"%08d" % number + bytes(size - 8) for number in range(count))


def ack(streams: Streams, receipts: Iterable[str]) -> None:
    given = [VERSION, (b"x-oms-receipt", ",".join(receipts).encode("ascii"))]
    assert streams.ask("POST", "/v1/ack", given).status == 204


def at_rest(measure: Callable[[], float]) -> float:
    """Wait until a figure no longer moves."""
    seen, since = measure(), time.monotonic()
    guard = since + 30
    while time.monotonic() - since < 0.5:
        time.sleep(0.05)
        if (now := measure()) != seen:
            assert time.monotonic() < guard, f"it never comes to rest: {now}"
            seen, since = now, time.monotonic()
    return seen


@pytest.mark.parametrize("by_ack", [True, LATER_FALSE])
def test_a_slow_reader_gets_everything_and_holds_up_nobody(alone: Bridge, by_ack: bool) -> None:
    """One KiB at a time; the quick reader beside it, on the same connection, has it all before that."""
    target = fresh()
    sent = [*numbered(100, KIBIBYTE)]
    with Streams(alone.url) as there, Streams(alone.url, window=KIBIBYTE) as streams:
        fill(there, target, sent)
        slow = streams.push(target, group=b"slow", ack=by_ack)
        streams.until(lambda: len(streams.bodies[slow]) == KIBIBYTE, "its first KiB")
        quick = streams.push(target, group=b"quick", ack=False)
        streams.grant(quick, 1 << 30)
        streams.until(lambda: len(streams.lines(quick)) == len(sent), "the quick one has it all")
        assert len(streams.bodies[slow]) == KIBIBYTE
        lines = streams.lines(slow)
        while len(lines) < len(sent):
            streams.grant(slow, KIBIBYTE)
            streams.more(slow)
            acked, lines = len(lines), streams.lines(slow)
            if by_ack and lines[acked:]:
                ack(streams, [line["receipt"] for line in lines[acked:]])
        for stream in (slow, quick):
            assert bodies_of(streams.lines(stream)) == sent
        assert {line["extensionHeader"]["deliveryCount"] for line in lines} == {1}
        assert pull(there, target, group=b"slow").status == 204


@pytest.mark.parametrize(
    ("accept", "by_ack"),
    [
        (LINES, True),
        pytest.param(LINES, False, marks=pytest.mark.extended),
        pytest.param(EVENTS, True, marks=pytest.mark.extended),
        pytest.param(EVENTS, False, marks=pytest.mark.extended),
    ],
)
def test_a_reader_that_stops_reading_stops_the_bridge_from_fetching(alone: Bridge, accept: Pair, by_ack: bool) -> None:
    target = fresh()
    sent = [*numbered(BACKLOG, BODY)]
    with Streams(alone.url, window=4 * BODY) as streams:
        fill(streams, target, sent)
        before, settled = alone.resident_bytes(), gauges(alone)["oms_settled_total"]
        stream = streams.push(target, ack=by_ack, accept=accept)
        streams.until(lambda: len(streams.bodies[stream]) == 4 * BODY, "its window is full")
        taken = at_rest(lambda: gauges(alone)["oms_leases"] + gauges(alone)["oms_settled_total"] - settled)
        read = len(streams.lines(stream))
        assert read < taken <= read + MEBIBYTE // BODY
        assert alone.resident_bytes() - before < 8 * MEBIBYTE
        other = fresh()
        store(streams, other)
        take_one(streams, other)
        streams.grant(stream, 1 << 30)
        got: list[bytes] = []
        while len(got) < BACKLOG:
            streams.until(lambda: b"\n" in streams.bodies[stream], "more of it")
            lines = streams.take(stream)
            got += bodies_of(lines)
            if by_ack and lines:
                ack(streams, [line["receipt"] for line in lines])
        assert got == sent


@pytest.mark.extended
def test_a_hundred_readers_that_stop_hold_little(alone: Bridge) -> None:
    """At most one MiB each."""
    target = fresh()
    with Streams(alone.url) as there, Streams(alone.url, window=2000) as deaf:
        fill(there, target, numbered(BACKLOG, BODY))
        for number in range(100):  # what a group costs is another matter
            take_one(there, target, b"g%d" % number)
        before, settled = alone.resident_bytes(), gauges(alone)["oms_settled_total"]
        streams = [deaf.push(target, group=b"g%d" % number, ack=False, accept=EVENTS) for number in range(100)]
        deaf.until(lambda: all(len(deaf.bodies[stream]) == 2000 for stream in streams), "their windows are full")
        taken = at_rest(lambda: gauges(alone)["oms_settled_total"] - settled)
        assert 0 < taken <= len(streams) * MEBIBYTE // BODY
        assert alone.resident_bytes() - before < len(streams) * MEBIBYTE
        other = fresh()
        store(there, other)
        take_one(there, other)
        deaf.leave("reset", streams)
        wait_until(lambda: load(alone).requests == 0, lambda: load(alone))


def test_a_socket_that_is_not_read_stops_the_bridge_from_fetching(alone: Bridge) -> None:
    """Over HTTP/1.1 there is no window but the kernel's, which is not the bridge's memory."""
    kernel = sum(int(Path(f"/proc/sys/net/ipv4/tcp_{side}mem").read_text("ascii").split()[2]) for side in "rw")
    target = fresh()
    with Streams(alone.url) as there:
        fill(there, target, numbered(BACKLOG, BODY))
        before, settled = alone.resident_bytes(), gauges(alone)["oms_settled_total"]
        reader = Plain(alone.url, target, group=b"g", ack=False)
        reader.until(b"\nid: ")
        taken = at_rest(lambda: gauges(alone)["oms_settled_total"] - settled)
        assert 0 < taken <= (MEBIBYTE + kernel) // BODY
        assert alone.resident_bytes() - before < 8 * MEBIBYTE
        reader.close()
        wait_until(lambda: load(alone).requests == 0, lambda: load(alone))


@pytest.mark.parametrize("by_ack", [True, LATER_FALSE])
@pytest.mark.parametrize(
    ("server", "size"),
    # Granian takes six parts of a stream before it waits for the reader: of 100 KiB nothing would wait
    [("hypercorn", KIBIBYTE), ("hypercorn", 16 * KIBIBYTE), ("granian", 16 * KIBIBYTE)],
)
def test_a_reader_that_stands_still_is_ended(start: Start, by_ack: bool, size: int) -> None:
    """Its neighbours are not: who waits for messages does not stand still."""
    bridge, target, other = start(OMS_TIMEOUTS__STALL="2000"), fresh(), fresh()
    with Streams(bridge.url) as there, Streams(bridge.url, window=2000) as streams:
        waiting = streams.push(other, accept=EVENTS)
        fill(there, target, numbered(100, size))
        still = streams.push(target, ack=by_ack)
        streams.until(lambda: len(streams.bodies[still]) == 2000, "its window is full")
        wait_until(lambda: load(bridge)[:3] == (1, 1, 0), lambda: load(bridge))
        if bridge.server == "granian":
            streams.grant(still, MEBIBYTE)  # there the reset comes after what was written before it
        streams.until(lambda: streams.over(still) is not None, "it is ended")
        assert (streams.over(still), streams.over(waiting)) == ("reset", None)
        body, count = take_one(there, target)
        assert (body[:8] == b"%08d" % 0, count) == ((True, 2) if by_ack else (False, 1))
        store(there, other)
        streams.until(lambda: len(streams.lines(waiting)) == 1, "the neighbour goes on")


def test_a_socket_that_stands_still_is_ended(start: Start) -> None:
    bridge, target = start(OMS_TIMEOUTS__STALL="2000"), fresh()
    with Streams(bridge.url) as there:
        fill(there, target, numbered(BACKLOG // 4, BODY))
        rest = load(bridge)
        reader = Plain(bridge.url, target, group=b"g", ack=False)
        wait_until(lambda: load(bridge).requests == 1, lambda: load(bridge))
        wait_until(lambda: load(bridge).requests == 0, lambda: load(bridge))
        reader.read_to_the_end()
        assert b"event: end" not in reader.got
        reader.close()
        wait_until(lambda: load(bridge) <= rest, lambda: load(bridge))


@pytest.mark.extended
def test_a_reader_that_goes_on_reading_is_not_ended(start: Start) -> None:
    """However large the message: what counts is that nothing is read, not that it takes long."""
    bridge, target = start(OMS_TIMEOUTS__STALL="2000"), fresh()
    with Streams(bridge.url, window=BODY) as streams:
        store(streams, target, bytes(3 * MEBIBYTE))
        stream = streams.push(target)
        begun = time.monotonic()
        while time.monotonic() - begun < 6:
            streams.more(stream)
            time.sleep(0.2)  # its pace
            streams.grant(stream, BODY)
        streams.grant(stream, 1 << 30)
        streams.until(lambda: len(streams.lines(stream)) == 1, "all of it")


@pytest.mark.parametrize("by_ack", [True, False])
def test_a_half_closed_stream_goes_on(alone: Bridge, by_ack: bool) -> None:
    """END_STREAM says that the request is whole, however late it comes."""
    target = fresh()
    with Streams(alone.url) as streams:
        stream = streams.push(target, ack=by_ack, end=False, accept=EVENTS)
        streams.until(lambda: bool(streams.bodies[stream]), "it is open")
        store(streams, target, b"before")
        streams.until(lambda: len(streams.lines(stream)) == 1, "messages come before it")
        streams.end(stream)
        store(streams, target, b"after")
        streams.until(lambda: len(streams.lines(stream)) == 2, "and after it")
        assert bodies_of(streams.lines(stream)) == [b"before", b"after"]
        assert streams.over(stream) is None
