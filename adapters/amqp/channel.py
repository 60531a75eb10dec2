"""A channel of pika whose requests can be awaited."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pika.channel import Channel as PikaChannel
from pika.exceptions import AMQPError
from pika.spec import Basic

from adapters.amqp.connection import Connection, Delivered
from adapters.amqp.errors import of_channel
from adapters.amqp.retry import within_timeout
from adapters.amqp.settings import REQUEST_TIMEOUT
from bridge.errors import DestinationUnknown

_TIMEOUT: Final = REQUEST_TIMEOUT / 1000


class Channel:
    """Sends requests, which are answered in order. If the channel is closed, waiting requests fail with the reason."""

    def __init__(self, raw: PikaChannel) -> None:
        """Take over an open channel."""
        self.raw = raw
        """pika's channel, for methods without an answer: publish, ack, nack, callbacks."""
        self._connection: Connection = raw.connection
        self._number = raw.channel_number
        self.ended: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        """Done, with pika's reason, once the channel is closed; it never raises."""
        self._waiting: set[asyncio.Future[Any]] = set()
        raw.add_on_close_callback(self._closed)

    @property
    def open(self) -> bool:
        """Whether it is open."""
        return bool(self.raw.is_open)

    async def consume(self, queue: str, delivered: Delivered, **arguments: object) -> None:
        """Have the messages of a queue delivered to a callback: it gets those of all consumers of the channel.

        Raises as `ask`.
        """
        self.deliver_to(delivered)
        await self.ask(queue, "basic_consume", queue=queue, on_message_callback=ignore_delivery, **arguments)

    def deliver_to(self, delivered: Delivered) -> None:
        """Set the callback for the messages of all consumers of the channel."""
        self._connection.delivered[self._number] = delivered

    async def ask(self, subject: str, method: str, **arguments: object) -> Any:  # noqa: ANN401 - the method's answer
        """Call a method of pika's channel and return the broker's answer: `ask("orders", "queue_declare", …)`.

        Raises `Refused`, `DestinationUnknown` or `BackendUnavailable` if the channel is closed instead of an answer
        (a refusal always closes it), or after `REQUEST_TIMEOUT`. `subject` is named in errors.
        """
        request = partial(getattr(self.raw, method), **arguments)
        frame = await self._answer(subject, lambda answer: request(callback=partial(_answered, answer)))
        return frame.method

    async def has(self, queue: str) -> bool:
        """Return whether a queue exists; if not, the channel is closed. Raises `Refused`, `BackendUnavailable`."""
        try:
            await self.ask(queue, "queue_declare", queue=queue, passive=True)
        except DestinationUnknown:
            return False
        return True

    async def get(self, queue: str) -> bytes | None:
        """Return the body of the first message of a queue, unacknowledged; None: it is empty. Raises as `ask`."""

        def get(answer: "asyncio.Future[Any]") -> None:
            self.raw.add_callback(lambda _frame: _answered(answer, None), [Basic.GetEmpty])
            self.raw.basic_get(queue, lambda _raw, _method, _properties, body: _answered(answer, body))

        body: bytes | None = await self._answer(queue, get)
        return body

    async def close(self) -> None:
        """Close it, and wait for that. Unacknowledged messages return to their queues."""
        if self.raw.is_open:
            # pika would cancel the consumers first. A quorum queue (3.10.8) then delivers the messages behind the
            # unacknowledged ones to the next consumer, before those return: 198 of 210 moves broke the order
            self.raw._cancelled.update(self.raw._consumers)  # noqa: SLF001 - pika has no other way to leave them
            self.raw.close()
        if not self.ended.done():
            await asyncio.wait((self.ended,), timeout=_TIMEOUT)

    def _closed(self, _channel: PikaChannel, reason: BaseException) -> None:
        self._connection.forget(self._number)
        if not self.ended.done():
            self.ended.set_result(reason)
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(reason)

    async def _answer(self, subject: str, request: "Callable[[asyncio.Future[Any]], object]") -> Any:  # noqa: ANN401
        """Send a request, and return what it sets as the answer."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.add(answer)
        try:
            request(answer)
            return await within_timeout(answer, f"{subject}: RabbitMQ has not answered for {_TIMEOUT:.0f} s.")
        except AMQPError as error:
            raise of_channel(self.ended.result() if self.ended.done() else error, subject) from error
        finally:
            self._waiting.discard(answer)


def _answered(answer: "asyncio.Future[Any]", result: object) -> None:
    if not answer.done():
        answer.set_result(result)


def ignore_delivery(_raw: object, _method: object, _properties: object, _body: bytes) -> None:
    """Fill the place of pika's callback: `Channel.consume` gets the deliveries from the connection."""
