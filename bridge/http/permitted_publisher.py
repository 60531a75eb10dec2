"""Publishes only the messages that a client may produce."""

from collections.abc import Sequence
from typing import Protocol

from bridge.engine.produced import Produced
from bridge.errors import BridgeError
from bridge.identity.caller import Caller
from bridge.identity.rules import Operation
from bridge.message import Field, Message


class Publisher(Protocol):
    """Where a request's messages go: the engine, or a transaction."""

    async def produce(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str, key: str | None
    ) -> Sequence[Produced | BridgeError]:
        """Publish messages; see `Engine.produce`."""
        ...


def permitted(publisher: Publisher, caller: Caller | None, *more: Operation) -> Publisher:
    """Return what publishes the messages that the caller may produce. `more`: what it needs besides.

    `caller` None: the bridge has no identities.
    """
    return publisher if caller is None else _PermittedPublisher(publisher, caller, (Operation.PRODUCE, *more))


class _PermittedPublisher:
    """Replaces each message that the caller may not produce by its error."""

    def __init__(self, publisher: Publisher, caller: Caller, operations: Sequence[Operation]) -> None:
        self._publisher = publisher
        self._caller = caller
        self._operations = operations

    async def produce(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str, key: str | None
    ) -> Sequence[Produced | BridgeError]:
        """See `Publisher`."""
        checked = [each if isinstance(each, BridgeError) else self._checked(each) for each in messages]
        publishing = self._publisher.produce(checked, require, peer, key)
        messages = checked = []  # nothing here holds the bodies meanwhile: see `Producer.produce`
        return await publishing

    def _checked(self, message: Message) -> Message | BridgeError:
        for operation in self._operations:
            if (refused := self._caller.refusal(operation, message.destination)) is not None:
                return refused
        if (name := self._caller.access.producer_property) is None:
            return message
        return message._replace(properties={**message.properties, name: self._caller.identity.principal})
