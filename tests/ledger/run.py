"""One run: producers and consumers at work while a story happens to their bridges and brokers."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

import aiohttp

from tests.ledger.batches import produce_batches
from tests.ledger.book import Book
from tests.ledger.client import Where, http
from tests.ledger.consumers import Group
from tests.ledger.producers import Lane, produce
from tests.ledger.verdict import Verdict, judge

LANES: Final = 48
"""Keys, each with its own producer; and a quarter as many producers without a key."""
UNKEYED: Final = LANES // 4
BATCHERS: Final = 4
"""Producers of batches; the keys are divided among them."""
PULLS: Final = 8
"""Pulling consumers at each bridge."""
STREAMS: Final = 2
"""Push streams at each bridge."""
PATIENCE: Final = 140.0
"""Seconds, and one more for each `_A_SECOND` messages: a guard, no measurement."""
_A_SECOND: Final = 200
SILENCE: Final = 45.0
"""Seconds without a delivery after which what is missing is lost; longer than a lease, which a lost reply leaves."""
GROUP: Final = "ledger"
AUDIT: Final = "audit"
LATE: Final = "late"
"""Has its first consumer when all is over: it reads what the backend kept for groups that come late."""


class Progress:
    """What a story waits for, so that its blows fall while there is work, however fast the machine is.

    It looks again and again: the book is pure and wakes no task.
    """

    def __init__(self, book: Book, total: int) -> None:
        self._book = book
        self._total = total

    async def reach(self, part: float) -> None:
        """Wait until this part of all messages is stored."""
        while self._book.stored < part * self._total:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    def stored(self) -> set[str]:
        """Return what is stored now, by messageId."""
        return {name for name, sent in self._book.sent.items() if sent.stored}

    async def served(self, url: str, messages: int = 100) -> None:
        """Wait until a bridge has handed out so many."""
        while sum(handed.by == url for handed in self._book.handed[GROUP]) < messages:
            assert self._book.stored < self._total, "all is stored already"
            await asyncio.sleep(0.02)


Story = Callable[[Progress], Awaitable[None]]
Producers = Callable[[Book, aiohttp.ClientSession, Where, str, int], list[Coroutine[Any, Any, None]]]
"""Makes the producers of a run: into a destination, so many messages of each key, and as many for each unkeyed lane."""


def one_by_one(
    book: Book, client: aiohttp.ClientSession, where: Where, destination: str, each: int
) -> list[Coroutine[Any, Any, None]]:
    """Return one producer for each key, and more without a key; each sends one message in a request."""
    lanes = range(LANES + UNKEYED)
    return [produce(book, client, where, Lane(destination, lane, each, lane < LANES)) for lane in lanes]


def in_batches(
    book: Book, client: aiohttp.ClientSession, where: Where, destination: str, each: int
) -> list[Coroutine[Any, Any, None]]:
    """Return producers that share the keys and the unkeyed lanes among them; each sends batches."""
    lanes = [Lane(destination, lane, each, lane < LANES) for lane in range(LANES + UNKEYED)]
    return [produce_batches(book, client, where, lanes[first::BATCHERS]) for first in range(BATCHERS)]


async def run(  # noqa: PLR0913 - what happens, where, and how much of it
    wheres: list[Where],
    destination: str,
    total: int,
    story: Story,
    *,
    silence: float = SILENCE,
    producers: Producers = one_by_one,
    late: bool = False,
) -> list[Verdict]:
    """Send at least `total` messages to the first bridge while all bridges' consumers share them, and judge.

    Returns the verdicts on the group that lived through the story, on one that reads everything afterwards, and with
    `late` on another one of these: for a backend whose history may lack what was stored about the time of a kill, if
    the group of the second verdict was made before.
    """
    book = Book()
    count = -(-total // (LANES + UNKEYED))
    progress = Progress(book, count * (LANES + UNKEYED))
    async with http() as client:
        group = Group(book, client, destination, GROUP)
        consuming = [
            asyncio.create_task(consumer(where, seed))
            for where in wheres
            for seed, consumer in enumerate([group.pull] * PULLS + [group.push] * STREAMS)
        ]
        working = [
            asyncio.ensure_future(story(progress)),
            *map(asyncio.ensure_future, producers(book, client, wheres[0], destination, count)),
        ]
        try:
            async with asyncio.timeout(PATIENCE + total / _A_SECOND):
                await _together(working, consuming)
                await _together([asyncio.ensure_future(_drained(book, silence))], consuming)
        except TimeoutError:
            raise AssertionError(f"it did not come to an end: {judge(book, GROUP)}") from None
        finally:
            for task in (*consuming, *working):
                task.cancel()
            await asyncio.gather(*consuming, *working, return_exceptions=True)
        url = await wheres[0].url()
        await group.take_rest(url)
        readers = (AUDIT, LATE) if late else (AUDIT,)
        for name in readers:
            await _read_again(book, Group(book, client, destination, name), name, url, silence)
    return [judge(book, name) for name in (GROUP, *readers)]


async def _together(work: Sequence[asyncio.Future[None]], beside: Sequence[asyncio.Future[None]]) -> None:
    """Wait for all of the work; raise what fails in it or beside it, none of which should end."""
    pending = set(work)
    while pending:
        done, _ = await asyncio.wait([*pending, *beside], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        pending -= done


async def _drained(book: Book, silence: float) -> None:
    """Wait until nothing is outstanding, or nothing comes any more."""
    clock = asyncio.get_running_loop().time
    seen, since = 0, clock()
    while book.outstanding(GROUP) and clock() < since + silence:
        if len(book.handed[GROUP]) > seen:
            seen, since = len(book.handed[GROUP]), clock()
        await asyncio.sleep(0.1)


async def _read_again(book: Book, group: Group, name: str, url: str, silence: float) -> None:
    """Read everything as a new group."""
    clock = asyncio.get_running_loop().time
    until = clock() + silence
    await group.read_all(url)
    while book.outstanding(name) and clock() < until:
        await group.read_all(url)
