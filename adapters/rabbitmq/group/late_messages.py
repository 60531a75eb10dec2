"""Messages that reach the log late: routed before a group was bound to the destination, and stored after its history.

On one node that takes a process that is suspended between two instructions. In a cluster, a connection between two
nodes that stalls is enough, or a log whose leader changes at that moment.

After the group's queues, a witness is bound to the destination: an exclusive queue. RabbitMQ routes by the destination
before it routes by partition, so a message in the witness was routed with the group's bindings. For some seconds after
the history, the bridge that has set the group up reads the log and the witness. It sends a message of the log that is
not in the witness to the group's queue. Such a message may be delivered twice, if the witness gets it later than the
log; none is missed.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.amqp.messages import Arrival, Outgoing
from adapters.amqp.properties import Properties
from adapters.amqp.retry import within_timeout
from adapters.amqp.settings import REQUEST_TIMEOUT
from adapters.amqp.stream_consumer import Reader
from adapters.rabbitmq.headers import MARKER
from adapters.rabbitmq.mapping import copied, is_marker, message_id
from adapters.rabbitmq.options import Existing
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology import declarations, names
from adapters.rabbitmq.topology.declarations import perform
from bridge.errors import BackendUnavailable, BridgeError

_ROUNDS: Final = 10
_ROUND: Final = 1.0
"""Seconds between two comparisons of the log with the witness: each bridge does ten for each late group."""
_PREFETCH: Final = 100
_PERSISTENT: Final = 2
_NOTHING: Final = f"RabbitMQ has sent nothing of it for {REQUEST_TIMEOUT / 1000:.0f} s."

_log = logging.getLogger("bridge.rabbitmq")


class LateMessages:
    """The witness of one group, and what the log has and the witness does not."""

    def __init__(self, link: Link, publisher: Publisher, pair: tuple[str, str], queue_of: Callable[[str], str]) -> None:
        """`queue_of` returns the group's queue for a routing key. `publisher` publishes on the connection `link`."""
        self._link = link
        self._publisher = publisher
        self._stream = names.log(pair[0])
        self._witness = names.witness(*pair, random.getrandbits(32))
        self._queue_of = queue_of
        self._channel: Channel | None = None
        self._reader: Reader | None = None
        self._ended: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        """Done once nothing more arrives from the log or from the witness."""
        self._marks: dict[str, asyncio.Future[None]] = {}
        """Marks that have been written and not read yet."""
        self._only_witness: Counter[str] = Counter()
        """Ids of messages of the witness that have not been read in the log."""
        self._only_log: dict[str, list[Arrival]] = {}
        """Messages of the log that have not been read in the witness, by id."""
        self._earlier: dict[str, list[Arrival]] = {}
        """Those of them that were read before the last mark in the log."""

    @classmethod
    async def bind(
        cls,
        link: Link,
        publisher: Publisher,
        pair: tuple[str, str],
        existing: Existing | None,
        queue_of: Callable[[str], str],
    ) -> Self:
        """Bind a witness, after the group is bound. Raises `Refused`, `DestinationUnknown` or `BackendUnavailable`."""
        late = cls(link, publisher, pair, queue_of)
        channel = late._channel = await link.channel()
        try:
            await perform(channel, pair[0], declarations.witness(late._witness, pair[0], existing))
            await channel.consume(late._witness, late._witnessed, auto_ack=True)
        except BaseException:
            await channel.close()
            raise
        channel.ended.add_done_callback(late._end)
        return late

    async def follow(self, start: int) -> None:
        """Read the log from an offset on. Raises `DestinationUnknown`, `Refused` or `BackendUnavailable`."""
        self._reader = await Reader.open(self._link, self._stream, _PREFETCH, self._logged, start)
        self._reader.failed.add_done_callback(self._end)

    async def watch(self) -> None:
        """Compare the log with the witness, in rounds; then delete the witness."""
        try:
            for number in range(_ROUNDS):
                await asyncio.sleep(_ROUND)
                await self._compare(number)
        except BridgeError as error:
            _log.warning(
                "a new group may miss messages that reached the log late: they could not be looked for. %s",
                error,
                extra={"queue": self._witness},
            )
        finally:
            await self.close()

    async def close(self) -> None:
        """Delete the witness. Idempotent."""
        for each in (self._reader, self._channel):
            if each is not None:
                await each.close()

    async def _compare(self, number: int) -> None:
        await self._mark(self._stream, f"{number} in the log {self._witness}")
        self._earlier, self._only_log = self._only_log, {}
        await self._mark(self._witness, f"{number} {self._witness}")
        late = [arrival for arrivals in self._earlier.values() for arrival in arrivals]
        self._earlier = {}
        for arrival in late:
            queue = self._queue_of(arrival.routing_key)
            _log.warning("a new group gets a message that reached the log late", extra={"queue": queue})
            await self._publisher.send(Outgoing("", queue, copied(arrival), arrival.body))

    async def _mark(self, queue: str, mark: str) -> None:
        """Write a mark to the log or the witness, and wait until it is read."""
        read = self._marks[mark] = asyncio.get_running_loop().create_future()
        properties = Properties(headers={MARKER: mark}, delivery_mode=_PERSISTENT)
        await self._publisher.send(Outgoing("", queue, properties, b""))
        waiting = asyncio.wait((read, self._ended), return_when=asyncio.FIRST_COMPLETED)
        await within_timeout(waiting, f"{queue}: {_NOTHING}")
        if not read.done():
            raise BackendUnavailable(f"{queue}: RabbitMQ sends nothing more of it.")

    def _logged(self, reader: Reader, _offset: int, arrival: Arrival) -> None:
        reader.done(arrival.tag)
        if is_marker(arrival.properties):
            self._read_mark(arrival.properties.headers)
            return
        name = message_id(arrival)
        if self._only_witness[name]:
            self._only_witness[name] -= 1
        else:
            self._only_log.setdefault(name, []).append(arrival)
        if not self._only_witness[name]:
            del self._only_witness[name]

    def _witnessed(self, _consumer: str, arrival: Arrival) -> None:
        if is_marker(arrival.properties):
            self._read_mark(arrival.properties.headers)
            return
        name = message_id(arrival)
        for unmatched in (self._earlier, self._only_log):
            if name in unmatched:
                unmatched[name].pop(0)
                if not unmatched[name]:
                    del unmatched[name]
                return
        self._only_witness[name] += 1

    def _read_mark(self, headers: Mapping[str, object]) -> None:
        read = self._marks.pop(str(headers[MARKER]), None)
        if read is not None and not read.done():
            read.set_result(None)

    def _end(self, ended: asyncio.Future[Any]) -> None:
        if not self._ended.done():
            self._ended.set_result(ended.result())
