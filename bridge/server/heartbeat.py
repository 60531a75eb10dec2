"""Whether the client of an HTTP/2 connection is still there: one timer for all its streams."""

import asyncio
from collections.abc import Callable

from bridge.server import listener


class Heartbeat:
    """Asks a client every `PING` seconds for a sign of life, and gives up on it `PONG` seconds after an unheard one.

    Without it a client whose power or network was cut keeps its streams, and what is leased to them, for ever: TCP
    notices nothing while there is nothing to send.
    """

    def __init__(self, ask: Callable[[], bool], give_up: Callable[[], None]) -> None:
        """`ask` sends a ping and returns True, or returns False when no stream is open and nothing is at stake."""
        self._ask, self._give_up = ask, give_up
        self._heard = True
        self._timer = asyncio.get_running_loop().call_later(listener.PING, self._beat)

    def heard(self) -> None:
        """Note that something arrived: whatever it is, the client lives."""
        self._heard = True

    def stop(self) -> None:
        """End the timer with the connection."""
        self._timer.cancel()

    def _beat(self) -> None:
        self._heard = False
        loop = asyncio.get_running_loop()
        if self._ask():
            self._timer = loop.call_later(listener.PONG, self._judge)
        else:
            self._timer = loop.call_later(listener.PING, self._beat)

    def _judge(self) -> None:
        if self._heard:
            self._timer = asyncio.get_running_loop().call_later(listener.PING, self._beat)
        else:
            self._give_up()
