"""Clients that leave before their request is answered, in each way in which a client can."""

import socket
import time
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
