"""What a client sees of `delivery`, `log` and `drain`."""

import socket
import time
from urllib.parse import urlsplit

import httpx

from tests.settings.bridge_client import PATIENCE, BridgeClient, code, fresh, wait_until


def deliveries(client: BridgeClient) -> object:
    """Give a message back twice, and pull once more."""
    target = fresh()
    client.store(target)
    for _ in range(2):
        client.settle("nack", client.pull(target))
    third = client.pull(target)
    if third.status_code == httpx.codes.OK:
        return f"delivery {third.headers['x-oms-h-deliverycount']}"
    dead = client.pull(f"{target}.dlq", waitmills=60_000)
    return f"dead letter after {dead.headers['x-oms-p-oms-dead-letter-count']}"


def announced_deliveries(client: BridgeClient) -> object:
    """Read the capabilities."""
    return client.capabilities()["maxDeliveries"]


def dead_letter_logged(client: BridgeClient) -> object:
    """Make a message a dead letter, and look for the warning in the log."""
    return any(_about(client, _dead_letter(client)))


def log_form(client: BridgeClient) -> object:
    """Make a message a dead letter, and look at the form of the warning."""
    (line,) = _about(client, _dead_letter(client))
    return "json" if line.startswith("{") else "text"


def _about(client: BridgeClient, target: str) -> list[str]:
    return [line for line in client.bridge.log.splitlines() if target in line]


def _dead_letter(client: BridgeClient) -> str:
    """Make a message a dead letter; return the destination from which it was moved."""
    target = fresh()
    client.store(target)
    while (pulled := client.pull(target)).status_code == httpx.codes.OK:
        client.settle("nack", pulled)
    assert client.pull(f"{target}.dlq", waitmills=60_000).status_code == httpx.codes.OK
    wait_until(lambda: client.pull(target).status_code == httpx.codes.NO_CONTENT and _has_moved(client), "it is moved")
    return target


def _has_moved(client: BridgeClient) -> bool:
    return client.count("dead_letters") > 0


def lease(client: BridgeClient) -> object:
    """Pull with the default lease, and pull again when it has ended, if that is soon."""
    target = fresh()
    assert client.pull(target).status_code == httpx.codes.NO_CONTENT  # a group may begin after the newest message
    client.store(target)
    before = _now()
    first = client.pull(target)
    until = int(first.headers["x-oms-leaseuntil"])
    possible = range(until - _now(), until - before + 2)  # two clocks are cut to a millisecond each
    if 30_000 in possible:
        return "30000 ms"
    assert 400 in possible, possible
    return f"400 ms, then delivery {client.pull(target, waitmills=60_000).headers['x-oms-h-deliverycount']}"


def _now() -> int:
    return time.time_ns() // 1_000_000


def longest_lease(client: BridgeClient) -> object:
    """Ask for a lease of six seconds."""
    return code(client.pull(fresh(), leasemills=6000))


def announced_lease(client: BridgeClient) -> object:
    """Read the capabilities."""
    return client.capabilities()["leaseMills"]


def new_group(client: BridgeClient) -> object:
    """Store a message, and pull it for a group that was not there before."""
    target = fresh()
    client.store(target)
    return client.pull(target).status_code


def group_idle(client: BridgeClient) -> object:
    """Use a group once, and see it go from /status."""
    target = fresh()
    assert client.pull(target).status_code == httpx.codes.NO_CONTENT
    wait_until(lambda: target not in str(client.status()["groups"]), "the group is closed")
    return "closed"


def group_kept(client: BridgeClient) -> object:
    """Use a group once, and see it on /status."""
    target = fresh()
    assert client.pull(target).status_code == httpx.codes.NO_CONTENT
    return "open" if target in str(client.status()["groups"]) else "closed"


def drain_cuts(client: BridgeClient) -> object:
    """End the bridge while half of a body is on its way, and send no more.

    A drain that takes longer than `timeouts.body` answers 408.
    """
    with _half_sent(client) as connection:
        client.bridge.begin_to_stop()
        return client.bridge.wait(), _answer(connection)


def drain_waits(client: BridgeClient) -> object:
    """End the bridge while half of a body is on its way, and send the rest once it drains."""
    with _half_sent(client) as connection:
        client.bridge.begin_to_stop()
        wait_until(lambda: client.status()["draining"], "it drains")
        connection.sendall(b"rest")
        answer = _answer(connection)
        return client.bridge.wait(), answer


def _half_sent(client: BridgeClient) -> socket.socket:
    parts = urlsplit(client.bridge.url)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE)
    head = ["POST /v1/messages HTTP/1.1", "host: localhost", "x-oms-version: 1.0.0", f"x-oms-h-destination: {fresh()}"]
    connection.sendall("\r\n".join([*head, "content-length: 8", "", "half"]).encode("ascii"))
    wait_until(lambda: client.active() == 1, "the request has arrived")
    return connection


def _answer(connection: socket.socket) -> str:
    try:
        status = connection.recv(4096).split(b" ")[1:2]
    except ConnectionResetError:
        status = []
    return status[0].decode("ascii") if status else "cut off"
