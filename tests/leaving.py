"""Clients that leave before their request is answered, in each way in which a client can."""

import socket
import time
from http import HTTPStatus
from urllib.parse import urlsplit

from tests.conformance.frames import Frames
from tests.http.asking import Pair, fresh, pull, pulling, store
from tests.http.streaming import leave, load, wait_until
from tests.launch import Bridge

LEAVES = ("shut", "close", "cut", "reset")
"""A half-close, a close, a reset of the connection, a reset of the stream."""


class Leaving:
    """A request over HTTP/1.1, or over HTTP/2 if it leaves by a reset of its stream."""

    def __init__(self, bridge: Bridge, path: bytes, pairs: list[Pair], how: str) -> None:
        self._how = how
        if how == "reset":
            self._frames = Frames(bridge.url)
            self._stream = self._frames.request("GET", path.decode(), pairs, b"")
            return
        parts = urlsplit(bridge.url)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=30)
        head = b"".join(b"%b: %b\r\n" % pair for pair in pairs)
        self._socket.sendall(b"GET %b HTTP/1.1\r\nhost: localhost\r\n%b\r\n" % (path, head))

    def leave(self) -> None:
        if self._how == "reset":
            self._frames.reset(self._stream)
        else:
            leave(self._socket, self._how)

    def close(self) -> None:
        if self._how == "reset":
            self._frames.hang_up()
        else:
            self._socket.close()


def lose_no_message(bridge: Bridge, path: bytes, ack: bytes, after: float) -> None:
    """Clients of new groups leave at once, or `after` seconds: the next pull of each group has its message."""
    target = fresh()
    with Frames(bridge.url) as there:
        store(there, target, b"precious")
        groups = {b"g-%b-%d" % (how.encode(), number): (how, number) for how in LEAVES for number in range(2)}
        for group, (how, number) in groups.items():
            client = Leaving(bridge, path, pulling(target, group=group, ack=ack), how)
            time.sleep(number * after)
            client.leave()
            if how == "shut":
                time.sleep(0.1)
            client.close()
        wait_until(lambda: load(bridge).requests == 0, lambda: load(bridge))
        for group in groups:
            answer = pull(there, target, (b"x-oms-waitmills", b"30000"), group=group)
            assert (answer.body, answer.headers[b"x-oms-h-deliverycount"]) == (b"precious", b"1"), group


def lose_no_message_of_an_open_group(bridge: Bridge, ack: bytes) -> None:
    """Clients leave while they wait, or as soon as they have asked; each message is delivered to a client that stays.

    One that closes only its sending side may have the message. With ack, one that leaves too late for the bridge to
    notice has a lease, which ends.
    """
    target = fresh()
    wait, lease = (b"x-oms-waitmills", b"30000"), (b"x-oms-leasemills", b"1000")
    groups = {b"g-%b" % how.encode(): how for how in LEAVES}
    with Frames(bridge.url) as there:
        for group in groups:
            assert pull(there, target, group=group).status == HTTPStatus.NO_CONTENT
        waiting = [
            Leaving(bridge, b"/v1/messages", pulling(target, (b"x-oms-waitmills", b"60000"), group=group, ack=ack), how)
            for group, how in groups.items()
        ]
        wait_until(lambda: load(bridge).waiting == len(waiting), lambda: load(bridge))
        for client in waiting:
            client.leave()
        wait_until(lambda: load(bridge).requests == 0, lambda: load(bridge))
        store(there, target, b"first")
        for group in groups:
            answer = pull(there, target, wait, lease, group=group)
            assert (answer.body, answer.headers[b"x-oms-h-deliverycount"]) == (b"first", b"1"), group
            settled = [(b"x-oms-version", b"1.0.0"), (b"x-oms-receipt", answer.headers[b"x-oms-receipt"])]
            assert there.ask("POST", "/v1/ack", settled).status == HTTPStatus.NO_CONTENT
        for client in waiting:
            client.close()
        if ack == b"false":  # a message is settled before it is sent
            return
        store(there, target, b"second")
        for group, how in groups.items():
            client = Leaving(bridge, b"/v1/messages", pulling(target, wait, lease, group=group), how)
            client.leave()
            answer = pull(there, target, wait, group=group)
            assert answer.body == b"second", group
            assert answer.headers[b"x-oms-h-deliverycount"] in (b"1", b"2"), group
            client.close()
