"""`kill -9` at random moments, again and again in one directory: nothing that was answered is lost."""

import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from adapters.base import Delivery
from adapters.memory import connect
from adapters.memory.durable_adapter import DurableAdapter
from tests.unit.adapters_memory.alone import alone

KILLS = 8

CHILD = """
import asyncio, os, random, sys, time
from adapters.base import Outcome
from adapters.memory import connect
from bridge.message import Message

path, prefix = sys.argv[1:]
draw = random.Random(prefix)

def now():
    return time.time_ns() // 1_000_000

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # one write, so that no line is half answered

async def produce(adapter, worker):
    n = 0
    while True:
        n += 1
        name = f"{prefix}-{worker}-{n}"
        message = Message("orders", name.encode() + b" " + b"x" * draw.randrange(3000), partition=draw.randrange(4),
                          message_id=name, born_timestamp=now())
        if draw.random() < 0.2:
            message = message._replace(delay_time=draw.randrange(1, 400))
        stored = await adapter.publish(message)
        say("stored", name, stored.partition, -1 if stored.offset is None else stored.offset)

async def consume(adapter, group):
    while True:
        held = await group.fetch(draw.randrange(1, 60), 1 << 30)
        for d in held:
            if now() < d.message.due:
                say("early", d.message.message_id)
        held = [d._replace(attempts=d.attempts + 1) for d in held]
        group.settle(held, Outcome.LEASED)
        draw.shuffle(held)
        done = [d for d in held if draw.random() < 0.8]
        back = [d for d in held if d not in done and draw.random() < 0.5]
        if back:
            group.settle(back, Outcome.RELEASED)
        for d in done:
            say("settling", d.partition, d.position)
        await group.settle(done, Outcome.SETTLED)
        for d in done:
            say("settled", d.partition, d.position)
        for d in held:
            say("attempted", d.partition, d.position, d.attempts)

async def main():
    adapter = await asyncio.wait_for(opened(), 20)
    group = await adapter.subscribe("orders", "g", lambda partitions: [])
    say("ready")
    await asyncio.gather(consume(adapter, group), *(produce(adapter, worker) for worker in range(8)))

async def opened():
    adapter = connect(f"memory://?partitions=4&journal={path}")
    await adapter.start()
    return adapter

asyncio.run(main())
"""

Place = tuple[int, int]


class Ledger:
    """What the children were answered."""

    def __init__(self) -> None:
        self.stored: dict[str, Place] = {}
        self.settling: set[Place] = set()
        """A kill may fall between the settlement and its answer."""
        self.settled: set[Place] = set()
        self.attempts: Counter[Place] = Counter()

    def read(self, lines: list[str]) -> None:
        for line in lines:
            match line.split():
                case ["stored", name, partition, offset]:
                    assert name not in self.stored
                    self.stored[name] = int(partition), int(offset)
                case ["settling", partition, offset]:
                    self.settling.add((int(partition), int(offset)))
                case ["settled", partition, offset]:
                    place = int(partition), int(offset)
                    assert place not in self.settled, "settled stays settled"
                    self.settled.add(place)
                case ["attempted", partition, offset, attempts]:
                    # printed after a settlement that was queued behind it, so it is on disk
                    self.attempts[int(partition), int(offset)] = int(attempts)
                case words:
                    assert words == ["ready"]


def run_and_kill(path: Path, prefix: str, seconds: float) -> list[str]:
    with subprocess.Popen([sys.executable, "-c", CHILD, str(path), prefix], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        first = child.stdout.readline()
        time.sleep(seconds)
        child.kill()
        return [first, *child.stdout.read().splitlines()]


async def everything(adapter: DurableAdapter, group: str) -> list[Delivery]:
    """Fetch all that a group has left, waiting for what is delayed."""
    subscription = await adapter.subscribe("orders", group, alone)
    found: list[Delivery] = []
    async with asyncio.timeout(60):
        while True:
            delayed = adapter.gauges()["delayed"]
            try:
                found += await asyncio.wait_for(subscription.fetch(1_000_000, 1 << 40), 0.5)
            except TimeoutError:  # a fetch returns at once while there is anything to fetch
                if not delayed:
                    return found


async def test_kill_loses_nothing(tmp_path: Path) -> None:
    ledger = Ledger()
    draw = random.Random()  # noqa: S311 - no secret
    for turn in range(KILLS):
        ledger.read(run_and_kill(tmp_path / "journal", f"t{turn}", draw.uniform(0.02, 0.5)))
    assert len(ledger.stored) > 100
    assert len(ledger.settled) > 50

    adapter = connect(f"memory://?journal={tmp_path / 'journal'}")
    assert isinstance(adapter, DurableAdapter)
    await adapter.start()
    audit = await everything(adapter, "audit")
    left = await everything(adapter, "g")
    await adapter.close()

    places = {d.message.message_id: (d.partition, d.position) for d in audit}
    assert len(places) == len(audit), "no message is there twice"
    assert len(set(places.values())) == len(audit), "no offset is given twice"
    for name, (partition, offset) in ledger.stored.items():
        assert name in places, "nothing that was answered is lost"
        assert places[name] == (partition, offset) or (offset < 0 and places[name][0] == partition)
    for d in audit:
        assert d.message.body.startswith(str(d.message.message_id).encode() + b" ")
    unsettled = {(d.partition, d.position): d.attempts for d in left}
    assert len(unsettled) == len(left), "nothing is delivered twice"
    assert set(places.values()) - ledger.settling <= unsettled.keys(), "what was not settled is delivered again"
    assert not ledger.settled & unsettled.keys(), "settled stays settled"
    again = ledger.attempts.keys() & unsettled.keys()
    assert again, "some messages were delivered before a kill and not settled"
    for place in again:
        assert unsettled[place] >= ledger.attempts[place], "attempts are counted over every restart"
