"""A bridge in front of some backend, and a client of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.conformance.conversation import Conversation, connection
from tests.launch import Bridge


@asynccontextmanager
async def bridged(
    directory: Path, backend: str, *, server: str = "hypercorn", **settings: str
) -> AsyncIterator[tuple[Bridge, Conversation]]:
    """Start a bridge of the test's own; `settings` are OMS_* variables."""
    with Bridge(directory, server=server, backend=backend, settings=settings) as bridge:
        async with connection(bridge.url) as http:
            yield bridge, Conversation(http)
