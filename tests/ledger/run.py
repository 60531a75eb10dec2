"""One run: producers and consumers at work while a story happens to their bridges and brokers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tests.ledger.book import Book
from tests.ledger.client import Where, http
from tests.ledger.consumers import Group
from tests.ledger.producers import Lane, produce
from tests.ledger.verdict import Verdict, judge

LANES: Final = 48
"""Keys, each with a producer of its own; and a quarter as many producers without a key."""
UNKEYED: Final = LANES // 4
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


class Progress:
    """What a story waits for, so that its blows fall while there is work, however fast the machine is.

    It looks again and again: the book is pure and wakes nobody.
    """

    def __init__(self, book: Book, total: int) -> None:
        self._book = book
        self._total = total

    async def reach(self, part: float) -> None:
        """Wait until this part of all messages is stored."""
        while self._book.stored < part * self._total:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def served(self, url: str, messages: int = 100) -> None:
        """Wait until a bridge has handed out so many."""
        while sum(handed.by == url for handed in self._book.handed[GROUP]) < messages:
            assert self._book.stored < self._total, "all is stored already"
            await asyncio.sleep(0.02)


Story = Callable[[Progress], Awaitable[None]]


async def run(
    wheres: list[Where], destination: str, total: int, story: Story, *, silence: float = SILENCE
) -> list[Verdict]:
    """Send at least `total` messages to the first bridge while all bridges' consumers share them, and judge.

    Returns the verdicts on the group that lived through the story, and on one that reads everything afterwards.
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
            *(
                asyncio.ensure_future(produce(book, client, wheres[0], Lane(destination, lane, count, lane < LANES)))
                for lane in range(LANES + UNKEYED)
            ),
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
        await _read_again(book, Group(book, client, destination, AUDIT), url, silence)
    return [judge(book, name) for name in (GROUP, AUDIT)]


async def _together(work: Sequence[asyncio.Future[None]], beside: Sequence[asyncio.Future[None]]) -> None:
    """Wait for all of the work; raise what goes wrong in it or beside it, where nothing ends by itself."""
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


async def _read_again(book: Book, group: Group, url: str, silence: float) -> None:
    """Read everything as a new group."""
    clock = asyncio.get_running_loop().time
    until = clock() + silence
    await group.read_all(url)
    while book.outstanding(AUDIT) and clock() < until:
        await group.read_all(url)
