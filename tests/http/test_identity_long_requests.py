"""What is open when a token expires or is revoked, or a permission is taken away, ends with the reason."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.conformance.frames import Frames
from tests.http.callback_endpoint import wait_until
from tests.http.gateway import RULES, STATIC, Gateway
from tests.trouble import PATIENCE

Lose = Callable[[Gateway], None]


@pytest.fixture
def gateway(tmp_path: Path, server: str) -> Iterator[Gateway]:
    with Gateway(tmp_path, server) as gateway:
        gateway.write("rules", {"rules": [*RULES, {**RULES[2], "groups": ["login:consumers"]}]})
        wait_until(lambda: "a changed file is in use" in gateway.bridge.log)
        yield gateway


def _expire(_: Gateway) -> None:
    """The token of `begin` is valid for three seconds."""


def _revoke_id(gateway: Gateway) -> None:
    gateway.write("revoked", {"jti": ["7"]})


def _revoke_principal(gateway: Gateway) -> None:
    gateway.write("revoked", {"principals": ["login:c"]})


def _deny(gateway: Gateway) -> None:
    gateway.write("rules", {"rules": [*RULES, {"groups": ["login:*"], "deny": ["consume"], "destinations": ["ord*"]}]})


LOSSES: Final[dict[str, tuple[Lose, int, str, str]]] = {
    "expired": (_expire, 401, "unauthenticated", "the token has expired"),
    "revoked by its id": (_revoke_id, 401, "unauthenticated", "the token is revoked"),
    "revoked by its principal": (_revoke_principal, 401, "unauthenticated", "the token is revoked"),
    "not permitted any more": (_deny, 403, "not-permitted", "consume on orders, group billing"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_waiting_pulls_and_streams_end_with_the_reason(gateway: Gateway, loss: str) -> None:
    lose, status, code, detail = LOSSES[loss]
    claims = {"groups": ["consumers"], "jti": "7", "exp": int(time.time()) + (3 if loss == "expired" else 600)}
    found: dict[str, tuple[object, ...]] = {}
    begun = [threading.Event() for _ in range(3)]
    query = {"source": "orders", "consumerid": "billing", "ack": "true"}

    def pull() -> None:
        with gateway.client("login:c", **claims) as client:
            begun[0].set()
            answer = client.get("/v1/messages", params={**query, "waitmills": "55000"})
            found["pull"] = (answer.status_code, answer.json()["code"], answer.json()["detail"])

    def push(place: int, accept: str) -> None:
        with (
            gateway.client("login:c", **claims) as client,
            client.stream("GET", "/v1/push", params=query, headers={"accept": accept}) as stream,
        ):
            begun[place].set()
            found[accept] = tuple("".join(stream.iter_text()).split("\n"))

    threads = [
        threading.Thread(target=pull, daemon=True),
        threading.Thread(target=push, args=(1, "application/x-ndjson"), daemon=True),
        threading.Thread(target=push, args=(2, "multipart/mixed"), daemon=True),
    ]
    for thread in threads:
        thread.start()
    for event in begun:
        assert event.wait(30)
    time.sleep(0.3)  # the pull waits by now
    lose(gateway)
    for thread in threads:
        thread.join(60)
    assert found["pull"][:2] == (status, code)
    assert detail in str(found["pull"][2])
    last = json.loads(str([line for line in found["application/x-ndjson"] if line][-1]))
    assert last["end"] == code
    assert detail in last["detail"]
    assert not "".join(map(str, found["multipart/mixed"])).rstrip().endswith("--")  # without its closing delimiter
    assert "internal error" not in gateway.bridge.log
    with gateway.client("ops") as ops:  # what was leased is ready for others, and nothing waits
        assert ops.get("/v1/messages", params={**query, "waitmills": "0"}).status_code == 204
    with gateway.management("ops") as management:
        assert "oms_waiting_pulls 0.0" in management.get("/metrics").text


def test_a_message_that_a_lost_stream_has_leased_is_ready_again(gateway: Gateway) -> None:
    query = {"source": "orders", "consumerid": "billing", "ack": "true"}
    with gateway.client("ops") as ops, gateway.client("billing") as billing:
        assert ops.post("/v1/messages", headers={"x-oms-h-destination": "orders"}, content=b"x").status_code == 200
        headers = {"accept": "application/x-ndjson"}
        with billing.stream("GET", "/v1/push", params=query, headers=headers) as stream:
            lines = stream.iter_lines()
            assert json.loads(next(filter(None, lines)))["receipt"]
            gateway.write_tokens(*(each for each in STATIC if each != "billing"))
            assert json.loads([*filter(None, lines)][-1])["end"] == "unauthenticated"
        taken = ops.get("/v1/messages", params={**query, "waitmills": "20000"})
        assert (taken.status_code, taken.headers["x-oms-h-deliverycount"]) == (200, "2")


def test_a_produce_stream_ends_with_its_token(gateway: Gateway) -> None:
    """Over HTTP/2, by which the client reads while it sends; a permission is asked for each line."""
    with Frames(gateway.bridge.url) as frames:
        headers = {**gateway.headers("shop"), "content-type": "application/x-ndjson"}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        stream = frames.request("POST", "/v1/stream", pairs)
        line = b'{"header": {"destination": "orders"}}\n'
        frames.send(stream, line)
        assert json.loads(_line(frames, stream, 0))["status"] == 200
        gateway.write("rules", {"rules": []})
        wait_until(lambda: gateway.bridge.log.count("a changed file is in use") == 2)
        frames.send(stream, line)
        assert json.loads(_line(frames, stream, 1))["code"] == "not-permitted"
        gateway.write_tokens("ops")
        assert json.loads(_line(frames, stream, 2))["end"] == "unauthenticated"


def _line(frames: Frames, stream: int, number: int) -> bytes:
    """Wait for a line of a response; empty lines are heartbeats."""
    while len(lines := [*filter(None, frames.body_of(stream).split(b"\n")[:-1])]) <= number:
        assert frames.grows(stream, len(frames.body_of(stream)), PATIENCE)
    return lines[number]


def test_rules_change_under_load_without_an_error(gateway: Gateway) -> None:
    """A message is stored or not permitted, whatever happens to the files."""
    stop, statuses = threading.Event(), list[int]()

    def produce() -> None:
        with gateway.client("shop") as client:
            while not stop.is_set():
                answer = client.post("/v1/messages", headers={"x-oms-h-destination": "orders"}, content=b"x")
                statuses.append(answer.status_code)

    threads = [threading.Thread(target=produce) for _ in range(3)]
    for thread in threads:
        thread.start()
    for rules in ([], [*RULES], ["broken"], [], [*RULES]):
        count, changes = len(statuses), gateway.bridge.log.count("a changed file is")
        gateway.write("rules", {"rules": rules})
        wait_until(lambda changes=changes: gateway.bridge.log.count("a changed file is") > changes)  # type: ignore[misc]
        wait_until(lambda count=count: len(statuses) > count + 50)  # type: ignore[misc]
    stop.set()
    for thread in threads:
        thread.join()
    assert set(statuses) == {200, 403}
    assert statuses[-1] == 200
    assert "a changed file is refused, its last good content stays in use" in gateway.bridge.log


def test_a_client_that_does_not_read_is_cut_off(gateway: Gateway) -> None:
    with gateway.client("ops") as ops:
        for _ in range(40):
            answer = ops.post("/v1/messages", headers={"x-oms-h-destination": "orders"}, content=b"x" * 1_000_000)
            assert answer.status_code == 200
    url = urlsplit(gateway.bridge.url)
    with socket.create_connection((str(url.hostname), url.port or 0), timeout=60) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(
            b"GET /v1/push?source=orders&consumerid=billing HTTP/1.1\r\nhost: localhost\r\nx-oms-version: 1.0.0\r\n"
            b"authorization: Bearer billing-token\r\n\r\n"
        )
        assert connection.recv(10)
        gateway.write_tokens("ops")

        def streams() -> str:
            with gateway.management("ops") as management:
                lines = management.get("/metrics").text.splitlines()
            return next(line for line in lines if line.startswith('oms_requests_active{route="GET /v1/push"}'))

        wait_until(lambda: streams().endswith(" 0.0"))
