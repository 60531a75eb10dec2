"""One call of `fetch_again`: the partitions get other channels, on which all their messages are delivered again.

Returning single messages to a quorum queue would be less work. But the queue would put them behind those that were
delivered before, and the next bridge would get the messages of a key in another order (3.10.8).
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from adapters.base import Delivery
from adapters.rabbitmq.consume.partition import Partition
from bridge.errors import BridgeError
from bridge.message import Message


class FetchAgain:
    """Collects the messages as they are delivered."""

    def __init__(self, future: asyncio.Future[list[Delivery]], find: Callable[[int], Partition]) -> None:
        """`find` returns a partition, or raises."""
        self.future = future
        self.partitions: set[Partition] = set()
        """Those of the messages."""
        self._find = find
        self._found: list[Delivery] = []
        self._left = 0

    def start(self, deliveries: Sequence[Delivery]) -> None:
        """Expect the messages. Raises what `find` raises."""
        self.partitions = {self._find(delivery.partition) for delivery in deliveries}
        self._left = 1
        for delivery in deliveries:
            again = partial(self._delivered, delivery)
            self._left += self._find(delivery.partition).unacked.fetch_again(delivery.position, again)
        self._done()

    def fail(self, error: BridgeError) -> None:
        """Fail the future; nothing more is collected."""
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # no caller may be waiting for it

    def _delivered(self, delivery: Delivery, message: Message | None) -> None:
        if message is not None:
            self._found.append(delivery._replace(message=message))
        self._done()

    def _done(self) -> None:
        self._left -= 1
        if not self._left and not self.future.done():
            self.future.set_result(self._found)
