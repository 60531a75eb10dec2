"""A bridge in front of Kafka, and somebody who talks to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from tests.conformance.conversation import Conversation, connection
from tests.launch import Bridge


def backend(servers: str, **options: object) -> str:
    """Return the URL of a backend whose own topics are its own."""
    told = {"prefix": f"t{uuid4().hex[:8]}."} | options
    return f"kafka://{servers}?" + "&".join(f"{name}={value}" for name, value in told.items())


@asynccontextmanager
async def bridged(
    directory: Path, backend: str, *, server: str = "hypercorn", **settings: str
) -> AsyncIterator[tuple[Bridge, Conversation]]:
    """Start a bridge of the test's own; `settings` are OMS_* variables."""
    with Bridge(directory, server=server, backend=backend, settings=settings) as bridge:
        async with connection(bridge.url) as http:
            yield bridge, Conversation(http)
