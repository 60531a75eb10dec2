"""Bridges with either client, for the tests of trouble with Kafka."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tests.conformance.conversation import Conversation
from tests.kafka.bridged import backend, bridged
from tests.kafka.each_client import CLIENTS
from tests.launch import Bridge


class Served(NamedTuple):
    """A bridge of the test's own, and who talks to it."""

    client: str
    bridge: Bridge
    talk: Conversation


@asynccontextmanager
async def with_both(
    directory: Path, servers: str, options: dict[str, str], **settings: str
) -> AsyncIterator[list[Served]]:
    """Start a bridge with each client, so that one trouble serves both: trouble takes time."""
    async with AsyncExitStack() as stack:
        served = []
        for client in CLIENTS:
            url = backend(servers, client=client, **options)
            bridge, talk = await stack.enter_async_context(bridged(directory / client, url, **settings))
            served.append(Served(client, bridge, talk))
        yield served
