"""Clients that leave, stall or wait."""

import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.conformance.frames import Frames
from tests.http.asking import fresh, post, producing, pull, pulling, refusal, store, stored
from tests.http.conftest import Start
from tests.http.late_backend import install
from tests.http.streaming import wait_until
from tests.launch import Bridge
from tests.leaving import LEAVES, Leaving, lose_no_message_of_an_open_group

WAIT = (b"x-oms-waitmills", b"60000")


def waiting_pulls(bridge: Bridge) -> int:
    counts = httpx.get(f"{bridge.management}/status", trust_env=False).json()["counts"]
    return int(counts["waiting_pulls"])


def active_requests(bridge: Bridge) -> float:
    text = httpx.get(f"{bridge.management}/metrics", trust_env=False).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("oms_requests_active{"))


def until_quiet(bridge: Bridge) -> None:
    """Wait until no request is left inside: the guard is generous, the condition exact."""
    deadline = time.monotonic() + 20
    while waiting_pulls(bridge) or active_requests(bridge):
        assert time.monotonic() < deadline, "a request of a client that left is still there"
        time.sleep(0.05)


def wait_for_pulls(bridge: Bridge, count: int) -> None:
    deadline = time.monotonic() + 20
    while waiting_pulls(bridge) != count:
        assert time.monotonic() < deadline, f"{waiting_pulls(bridge)} pulls wait, not {count}"
        time.sleep(0.02)


@pytest.fixture
def alone(start: Start) -> Bridge:
    """Return a bridge whose counts only this file's tests move."""
    return start(OMS_TIMEOUTS__BODY="29999")


@pytest.mark.parametrize(
    ("how", "ack"),
    [
        ("hang up", b"true"),
        ("reset", b"false"),
        pytest.param("hang up", b"false", marks=pytest.mark.extended),
        pytest.param("reset", b"true", marks=pytest.mark.extended),
    ],
)
def test_a_client_that_leaves_a_long_poll_loses_no_message(alone: Bridge, how: str, ack: bytes) -> None:
    target = fresh()
    with Frames(alone.url) as gone, Frames(alone.url) as there:
        streams = [gone.request("GET", "/v1/messages", pulling(target, WAIT, ack=ack), b"") for _ in range(20)]
        wait_for_pulls(alone, 20)
        if how == "hang up":
            gone.hang_up()
        else:
            for stream in streams:
                gone.reset(stream)
        until_quiet(alone)
        for number in range(3):
            store(there, target, b"%d" % number, (b"x-oms-h-messagekey", b"k%d" % number))
        counts = []
        for _ in range(3):
            answer = pull(there, target)
            assert answer.status == 200
            counts.append(answer.headers[b"x-oms-h-deliverycount"])
        assert counts == [b"1"] * 3
        assert pull(there, target).status == 204


@pytest.mark.parametrize("path", [b"/v1/messages", b"/v1/push"])
@pytest.mark.parametrize("ack", [b"true", b"false"])
def test_a_client_that_leaves_while_its_group_is_opened_loses_no_message(
    server: str, path: bytes, ack: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "state"
    file.write_text("ready", "utf-8")
    joining = file.with_suffix(".joining")
    with Bridge(tmp_path, server=server, backend=f"late://{file}", settings=install(tmp_path)) as bridge:
        with Frames(bridge.url) as there:
            target = fresh()
            store(there, target, b"precious")
            joining.touch()
            groups = {b"g-%b-%d" % (how.encode(), number): how for how in LEAVES for number in range(3)}
            clients = [Leaving(bridge, path, pulling(target, group=g, ack=ack), how) for g, how in groups.items()]
            wait_until(lambda: active_requests(bridge) == len(clients), lambda: active_requests(bridge))
            for client in clients:
                client.leave()
            until_quiet(bridge)
            joining.unlink()
            for group in groups:
                answer = pull(there, target, WAIT, group=group)
                assert (answer.body, answer.headers[b"x-oms-h-deliverycount"]) == (b"precious", b"1"), group
            for client in clients:
                client.close()
        assert bridge.terminate() == 0


@pytest.mark.parametrize("ack", [b"true", b"false"])
def test_a_client_that_leaves_an_open_group_loses_no_message(alone: Bridge, ack: bytes) -> None:
    lose_no_message_of_an_open_group(alone, ack)


def test_a_message_that_comes_while_its_client_leaves_is_kept(alone: Bridge) -> None:
    """The two meet at every possible moment: whatever happens, the message is delivered to who is still there."""
    target = fresh()
    with Frames(alone.url) as there:
        for number in range(30):
            body = b"%d" % number
            with Frames(alone.url) as gone:
                gone.request("GET", "/v1/messages", pulling(target, WAIT, (b"x-oms-leasemills", b"500")), b"")
                leaver = threading.Timer(number / 5000, gone.hang_up)
                leaver.start()
                store(there, target, body)
                leaver.join()
            answer = there.ask("GET", "/v1/messages", pulling(target, (b"x-oms-waitmills", b"10000")))
            assert (answer.status, answer.body) == (200, body)
            assert answer.headers[b"x-oms-h-deliverycount"] in (b"1", b"2")
            ack = [(b"x-oms-version", b"1.0.0"), (b"x-oms-receipt", answer.headers[b"x-oms-receipt"])]
            assert there.ask("POST", "/v1/ack", ack).status == 204
    until_quiet(alone)


def test_a_client_that_leaves_in_the_middle_of_a_body_stores_nothing(alone: Bridge) -> None:
    target = fresh()
    for how in ("hang up", "reset"):
        with Frames(alone.url) as gone:
            stream = gone.request("POST", "/v1/messages", producing(target))
            gone.send(stream, b"half a body")
            if how == "reset":
                gone.reset(stream)
                assert post(gone, producing(fresh())).status == 200
    until_quiet(alone)
    with Frames(alone.url) as there:
        assert stored(there, target) == []


def test_a_body_that_stalls_is_given_up(start: Start) -> None:
    target = fresh()
    with Frames(start(OMS_TIMEOUTS__BODY="1000").url) as frames:
        stream = frames.request("POST", "/v1/messages", producing(target))
        frames.send(stream, b"half a body")
        refusal(frames.answer(stream), 408, "request-timeout", "1000 ms")
        store(frames, target)
        assert stored(frames, target) == [b"good"]


def test_a_body_that_never_begins_is_given_up(start: Start) -> None:
    with Frames(start(OMS_TIMEOUTS__BODY="1000").url) as frames:
        for path in ("/v1/messages", "/v1/ack"):
            stream = frames.request("POST", path, producing(fresh(), (b"content-length", b"10")))
            refusal(frames.answer(stream), 408, "request-timeout")


def test_a_body_that_trickles_is_given_up(start: Start) -> None:
    with Frames(start(OMS_TIMEOUTS__BODY="1000").url) as frames:
        stream = frames.request("POST", "/v1/messages", producing(fresh()))
        for _ in range(30):
            frames.send(stream, b"drop")
            time.sleep(0.05)
        refusal(frames.answer(stream), 408, "request-timeout")


def test_a_reader_that_does_not_read_holds_up_nobody(alone: Bridge) -> None:
    target = fresh()
    with Frames(alone.url, window=0) as deaf, Frames(alone.url) as there:
        for _ in range(5):
            store(there, target, bytes(1 << 20))
        streams = [deaf.request("GET", "/v1/messages", pulling(target), b"") for _ in range(5)]
        assert {deaf.headers_of(stream).status for stream in streams} == {200}
        store(there, target, b"one more")
        assert pull(there, target).body == b"one more"
    until_quiet(alone)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_a_message_is_handed_out_where_all_addresses_are_listened_on(server: str, listen: str, tmp_path: Path) -> None:
    """As in a container. There the bridge has to find out to which address the client has connected."""
    with Bridge(tmp_path, server=server, settings={"OMS_LISTEN": listen}) as bridge:
        url = f"http://127.0.0.1:{bridge.url.rpartition(':')[2]}/v1/messages"
        version = {"x-oms-version": "1.0.0"}
        stored = httpx.post(url, content=b"x", headers=version | {"x-oms-h-destination": "orders"}, trust_env=False)
        assert stored.status_code == 200
        asked = {"x-oms-source": "orders", "x-oms-consumerid": "app", "x-oms-ack": "true", "x-oms-waitmills": "5000"}
        assert httpx.get(url, headers=version | asked, trust_env=False).content == b"x"
