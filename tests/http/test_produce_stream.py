"""A produce stream: results while it is sent, refusals that do not end it, a client that stops reading, a drain."""

import base64
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.http.asking import VERSION, fresh, post, refusal, stored
from tests.http.conftest import MOSTLY_HYPERCORN, Start
from tests.http.streaming import Streams, gauges, load, wait_until
from tests.launch import Bridge

NDJSON = (b"content-type", b"application/x-ndjson")
KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20


def line(destination: bytes, body: bytes, **header: object) -> bytes:
    """Return one message as a line."""
    item = {
        "header": {"destination": destination.decode("ascii")},
        "extensionHeader": header,
        "data": base64.b64encode(body).decode("ascii"),
    }
    return json.dumps(item).encode("ascii") + b"\n"


def opened(streams: Streams, *more: tuple[bytes, bytes]) -> int:
    """Open a produce stream and return its number."""
    stream = streams.request("POST", "/v1/stream", [VERSION, NDJSON, *more])
    streams.bodies[stream] = bytearray()
    return stream


def results(streams: Streams, stream: int, count: int) -> list[dict[str, Any]]:
    """Wait for the first results."""
    streams.until(lambda: len(streams.lines(stream)) >= count, f"{count} results")
    return streams.lines(stream)


def test_each_result_comes_while_the_body_is_sent(bridge: Bridge) -> None:
    target = fresh()
    with Streams(bridge.url) as streams:
        stream = opened(streams)
        assert streams.headers_of(stream).status == 200  # before the first line
        for number in range(3):
            streams.send(stream, line(target, b"%d" % number, priority=9))
            last = results(streams, stream, number + 1)[-1]
            assert (last["status"], last["offset"]) == (200, 0) if not number else last["status"] == 200
            assert "priority" in last["applied"]
        streams.send(stream, line(target, b"3")[:-1], end=True)  # the last line needs no line feed
        assert results(streams, stream, 5)[-1] == {"end": "complete"}
        assert streams.answer(stream).ended == "complete"
        assert sorted(stored(streams, target)) == [b"0", b"1", b"2", b"3"]


@MOSTLY_HYPERCORN
def test_a_line_that_is_refused_does_not_end_the_stream(start: Start) -> None:
    bridge, target = start(OMS_LIMITS__BODY="100000"), fresh()
    with Streams(bridge.url) as streams:
        stream = opened(streams, (b"idempotency-key", b"k"))
        long = b'{"data":"' + b"A" * 150_000 + b'"}\n'
        parts = (
            line(target, b"1"),
            b"nonsense\n \n",
            long,
            line(target, b"5"),
            line(b"__own", b"6"),
            line(target, b"7"),
        )
        streams.send(stream, b"".join(parts), end=True)
        found = results(streams, stream, 7)
        assert [each.get("code", each.get("status", each.get("end"))) for each in found] == [
            *(200, "body-invalid", "body-too-large", 200, "destination-invalid", 200, "complete")
        ]
        assert [each["line"] for each in found if "line" in each] == [2, 4, 6]
        again = opened(streams, (b"idempotency-key", b"k"))
        streams.send(again, line(target, b"1"), end=True)
        assert results(streams, again, 2)[0]["duplicate"] is True
        assert stored(streams, target) == [b"1", b"5", b"7"]


@pytest.mark.extended
def test_a_request_that_is_no_stream_is_refused(bridge: Bridge) -> None:
    with Streams(bridge.url) as streams:
        refusal(post(streams, [VERSION], b"", "/v1/stream"), 415, "content-type-unsupported")
        refusal(post(streams, [NDJSON], b"", "/v1/stream"), 400, "header-missing")
        refusal(post(streams, [VERSION, NDJSON], b"", "/v1/stream?key=a"), 400, "header-invalid")


@MOSTLY_HYPERCORN
def test_a_client_that_reads_no_results_is_not_read(start: Start) -> None:
    """Its neighbour is, and once it reads, every message has its result, in order."""
    bridge, target, count = start(OMS_TIMEOUTS__BODY="29996"), fresh(), 20_000
    with Streams(bridge.url, window=KIBIBYTE) as streams, Streams(bridge.url) as other:
        stream = opened(streams)
        rest = streams.send_until_stopped(stream, line(target, bytes(200), partition=0) * count)
        now = gauges(bridge)
        assert now["oms_produced_total"] < count / 2
        assert now["oms_memory_held_bytes"] < 3 * MEBIBYTE  # 20,000 lines would count 25: a kilobyte each, and the text
        neighbour = opened(other)
        other.send(neighbour, line(fresh(), b"x"), end=True)
        assert results(other, neighbour, 2)[-1] == {"end": "complete"}
        streams.grant(stream, 1 << 30)
        streams.send(stream, rest, end=True)
        assert [each["offset"] for each in results(streams, stream, count + 1)[:-1]] == [*range(count)]


@MOSTLY_HYPERCORN
def test_a_drain_ends_a_stream_with_a_line(tmp_path: Path, server: str) -> None:
    target = fresh()
    with Bridge(tmp_path, server=server) as bridge, Streams(bridge.url) as streams:
        stream = opened(streams)
        streams.send(stream, line(target, b"before"))
        results(streams, stream, 1)
        bridge.begin_to_stop()
        assert results(streams, stream, 2)[-1] == {"end": "draining"}
        assert streams.answer(stream).ended in {"complete", "reset"}
        assert bridge.wait() == 0


@pytest.mark.extended
def test_a_client_that_leaves_is_noticed(bridge: Bridge) -> None:
    """What had arrived whole is stored; the line that was cut off is not."""
    target = fresh()
    with Streams(bridge.url) as streams:
        stream = opened(streams)
        streams.send(stream, line(target, b"whole") + line(target, b"cut off")[:-5])
        results(streams, stream, 1)
        streams.leave("reset", [stream])
        wait_until(lambda: load(bridge)[:2] == (0, 0), lambda: load(bridge))
        assert stored(streams, target) == [b"whole"]


@MOSTLY_HYPERCORN
def test_http_1_gets_results_while_it_sends(bridge: Bridge) -> None:
    target, place = fresh(), urlsplit(bridge.url)
    with socket.create_connection((place.hostname, place.port), timeout=20) as connection:
        pairs = [(b"host", b"localhost"), (b"transfer-encoding", b"chunked"), VERSION, NDJSON]
        connection.sendall(b"POST /v1/stream HTTP/1.1\r\n%b\r\n" % b"".join(b"%b: %b\r\n" % pair for pair in pairs))
        got = b""
        for number in range(3):
            connection.sendall(_chunk(line(target, b"%d" % number)))
            while got.count(b'"messageId"') <= number:
                got += _more(connection)
        connection.sendall(_chunk(b""))
        while not got.endswith(b'{"end":"complete"}\n\r\n0\r\n\r\n'):
            got += _more(connection)
    with Streams(bridge.url) as streams:
        assert sorted(stored(streams, target)) == [b"0", b"1", b"2"]


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    assert data, "the connection ended"
    return data


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
