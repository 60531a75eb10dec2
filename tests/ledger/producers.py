"""Producers: the messages of one key one after another, each sent again under the same id until it is stored."""

import asyncio
import random
from typing import Final, NamedTuple

import aiohttp

from tests.ledger.book import Answer, Book
from tests.ledger.client import Reply, Where, ask

PAUSES: Final = (0.05, 0.1, 0.2, 0.4)
"""Seconds before a message is sent again; the last one repeats."""
SIZES: Final = (0, 40, 300, 1000)


class Lane(NamedTuple):
    """What one producer sends."""

    destination: str
    number: int
    messages: int
    keyed: bool
    """Whether all of it has one key; else it has none."""


async def produce(book: Book, client: aiohttp.ClientSession, where: Where, lane: Lane) -> None:
    """Send the messages of a lane; return when all of them are stored."""
    draw = random.Random(lane.number)  # noqa: S311 - no secret
    key = f"key {lane.number}" if lane.keyed else None
    for sequence in range(lane.messages):
        name = f"{lane.destination}-{lane.number}-{sequence}"
        body = f"{name} ".encode() + draw.randbytes(draw.choice(SIZES))
        headers = {"x-oms-h-destination": lane.destination, "x-oms-h-messageid": name}
        if key is not None:
            headers["x-oms-h-messagekey"] = key
        tries = 0
        while True:
            url = await where.url()
            attempt = book.attempt(name, key, sequence, body)
            answer = meaning(await ask(client, "POST", f"{url}/v1/messages", headers, body))
            book.answered(attempt, answer)
            if answer is Answer.STORED:
                break
            await asyncio.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
            tries += 1


def meaning(reply: Reply) -> Answer:
    """Return what the profile says that an answer to a produce means."""
    if reply.status == 200:
        return Answer.STORED
    return Answer.NOT_STORED if reply.status in {-1, 503} else Answer.UNKNOWN
