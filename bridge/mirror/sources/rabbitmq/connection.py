"""A connection to RabbitMQ for code that is not asynchronous: Spark calls from outside, and waits."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from pika import exceptions as pika

from adapters.amqp.errors import ClosedInTLS
from adapters.amqp.link import Link
from adapters.rabbitmq.options import Options
from bridge.errors import BackendUnavailable, BridgeError, CannotStart, Refused

OFFSET: Final = "x-stream-offset"
"""An argument of the consumer, and a header of what it gets."""
_HEARTBEAT: Final = 3_600_000
"""Nothing is read or answered between two calls, and Spark may take minutes for that."""
_LOGIN: Final = (
    *(pika.ProbableAuthenticationError, pika.AuthenticationError, pika.ProbableAccessDeniedError),
    *(ClosedInTLS, pika.IncompatibleProtocolError),
)
_NO_ACCESS: Final = {403, 530}

T = TypeVar("T")


class BlockingConnection:
    """One connection at a time, and the event loop that it runs on. What the loop does it does inside `run`."""

    def __init__(self, options: Options, purpose: str) -> None:
        self._options = options._replace(heartbeat=_HEARTBEAT)
        self._purpose = purpose
        self._runner = asyncio.Runner()
        self._link: Link | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it, and return what it returns. Raises `CannotStart` in place of `Refused`."""
        try:
            return self._runner.run(work)
        except Refused as error:
            raise CannotStart(f"RabbitMQ: {error.detail} The mirror needs permission to read it.") from error

    async def link(self) -> Link:
        """Return the connection, made if there is none. Raises `BackendUnavailable`."""
        if self._link is None:
            link = Link(self._options, self._purpose)
            try:
                await link.start()
            except BridgeError:
                await link.close()
                raise
            self._link = link
        return self._link

    async def disconnect(self) -> None:
        """Close the connection: the next one is a new one."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    def close(self) -> None:
        """End it all; once."""
        self._runner.run(self.disconnect())
        self._runner.close()


def is_refusal(error: BackendUnavailable) -> bool:
    """Whether RabbitMQ refused the mirror: waiting does not repair that."""
    cause = error.__cause__
    if isinstance(cause, pika.ConnectionClosedByBroker):
        return cause.reply_code in _NO_ACCESS
    return isinstance(cause, _LOGIN)
