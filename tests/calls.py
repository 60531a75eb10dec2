"""Calls of the engine as one client makes them: one message, one lease."""

from collections.abc import Awaitable, Sequence
from typing import Protocol

from bridge.engine.engine import Pulled
from bridge.engine.entries_and_receipts import Entry
from bridge.engine.group import Group
from bridge.engine.produced import Produced
from bridge.engine.pull_and_prefetch import PullRequest
from bridge.errors import BridgeError
from bridge.message import Field, Message


class Publisher(Protocol):
    """The engine, or its producer."""

    async def produce(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str
    ) -> Sequence[Produced | BridgeError]: ...


async def produce(publisher: Publisher, message: Message, require: Sequence[Field] = (), peer: str = "") -> Produced:
    """Publish one message; raises its error."""
    return only(await publisher.produce([message], require, peer))


def only(results: Sequence[Produced | BridgeError]) -> Produced:
    """Return the result of one message, or raise it."""
    [result] = results
    if isinstance(result, BridgeError):
        raise result
    return result


async def settled(pulling: Awaitable[Pulled | None]) -> Pulled | None:
    """Return what is pulled, once it is settled."""
    pulled = await pulling
    if pulled is None or pulled.settling is None:
        return pulled
    await pulled.settling
    return pulled._replace(settling=None)


async def lease(group: Group, pull_request: PullRequest) -> Entry | None:
    """Return the next entry, for which it waits if none is ready."""
    return group.lease(pull_request) or await group.wait_for_lease(pull_request)
