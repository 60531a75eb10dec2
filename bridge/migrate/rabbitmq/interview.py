"""Asks how a queue or an exchange was declared, over plain AMQP and without any right but `configure`.

AMQP 0-9-1 has no such question. But a declaration that does not fit what is there is refused, and RabbitMQ says what
differs. So each declaration here holds what nothing could be made of, such as a time to live of -1: where the name has
just been deleted, the broker refuses to make it anew. Learned differences are taken over until the impossible argument
is the one that differs, which tells its real value.
"""

from collections.abc import Mapping
from typing import Final

from pika.exceptions import ChannelClosedByBroker

from adapters.rabbitmq.link import Link
from adapters.rabbitmq.outcomes import ACCESS_REFUSED
from bridge.errors import BridgeError
from bridge.migrate.rabbitmq.facts import Traits, Value
from bridge.migrate.rabbitmq.refusals import Difference, difference

IMPOSSIBLE: Final[Mapping[str, Value]] = {
    "x-expires": 0,
    "x-message-ttl": -1,
    "x-dead-letter-exchange": 5,
    "x-dead-letter-routing-key": 5,
    "x-max-length": -1,
    "x-max-length-bytes": -1,
    "x-max-priority": -1,
    "x-overflow": "nonsense",
    "x-single-active-consumer": 5,
    "x-queue-type": "nonsense",
}
"""Arguments that are asked for, each with a value that no queue can be made with."""
_UNCHECKED: Final = "x-delivery-limit"
"""Asked for beside another impossible argument: 3.10.8 makes a quorum queue whatever stands here."""
_BESIDE: Final[Mapping[str, Value]] = {"x-max-priority": -1}
"""Which comes after it when RabbitMQ compares."""
_ALTERNATE: Final = "alternate-exchange"
_TRIES: Final = 30


async def ask_queue(link: Link, queue: str) -> Traits | None:
    """Return how a queue was declared; None where the user may not ask. Raises `BackendUnavailable`."""
    interview = _Interview(link, queue, {"durable": True, "auto_delete": False})
    try:
        for name, value in IMPOSSIBLE.items():
            await interview.learn(name, {name: value})
        await interview.learn(_UNCHECKED, {_UNCHECKED: -5, **_BESIDE})
    except PermissionError:
        return None
    return interview.traits()


async def ask_exchange(link: Link, exchange: str) -> Traits | None:
    """Return how an exchange was declared; None where the user may not ask. Raises `BackendUnavailable`."""
    interview = _Interview(link, exchange, {"type": "topic", "durable": True, "auto_delete": False, "internal": False})
    try:
        await interview.learn(_ALTERNATE, {_ALTERNATE: 5})
    except PermissionError:
        return None
    return interview.traits()


class _Interview:
    """What is known of one queue or exchange; a `type` makes it an exchange."""

    def __init__(self, link: Link, name: str, traits: Mapping[str, Value]) -> None:
        self._link = link
        self._name = name
        self._traits = dict(traits)
        self._arguments: dict[str, Value] = {}

    def traits(self) -> Traits:
        """Return all of it."""
        kind = self._traits.get("type")
        return Traits(
            durable=bool(self._traits["durable"]),
            auto_delete=bool(self._traits["auto_delete"]),
            internal=bool(self._traits.get("internal")),
            kind=None if kind is None else str(kind),
            arguments=self._arguments,
        )

    async def learn(self, wanted: str, impossible: Mapping[str, Value]) -> None:
        """Find out one argument, and whatever differs before it; it may stay unknown. Raises `PermissionError`."""
        for _ in range(_TRIES):
            found = await self._declare(impossible)
            if found is None or (found.name in impossible and found.name != wanted):
                return
            (self._traits if found.name in self._traits else self._arguments)[found.name] = found.current
            if found.name == wanted:
                return

    async def _declare(self, impossible: Mapping[str, Value]) -> Difference | None:
        """Return the difference that the broker names first."""
        traits: dict[str, object] = dict(self._traits)
        method, place = "queue_declare", "queue"
        if "type" in traits:
            method, place = "exchange_declare", "exchange"
            traits["exchange_type"] = traits.pop("type")
        arguments = {name: value for name, value in self._arguments.items() if value is not None} | dict(impossible)
        channel = await self._link.channel()
        try:
            await channel.ask(self._name, method, **{place: self._name}, **traits, arguments=arguments)
        except BridgeError as error:
            reason = error.__cause__
            if not isinstance(reason, ChannelClosedByBroker):
                raise
            if reason.reply_code == ACCESS_REFUSED:
                raise PermissionError from None
            return difference(reason.reply_text)
        finally:
            await channel.close()
        return None
