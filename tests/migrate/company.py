"""A company that moves: producers and consumers of any kind come and go, and a book says what became of each order.

Each program is a separate process and appends to a file: a producer what was confirmed, a consumer what it does. All
consumers share one file, so its order is the order in which things happened.
"""

import asyncio
import json
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.ledger.book import Answer, Book
from tests.ledger.verdict import Verdict, judge

SECONDS: Final = 120.0
"""A guard, no measurement."""
GROUP: Final = "billing"
_CUSTOMERS: Final = 12
_REGION: Final = "eu"


class Order(NamedTuple):
    """What one line of standard input says."""

    name: str
    customer: str

    @property
    def text(self) -> str:
        """The body; its name is in it, as a consumer may see nothing else of it."""
        return f"{self.name}:book"


class _Producer:
    def __init__(self, command: Sequence[str], confirmed: Path, log: Path) -> None:
        self.confirmed = confirmed
        self.orders: list[Order] = []
        with confirmed.open("ab") as output, log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=errors, env=_environ(), text=True
            )

    def lines(self) -> list[str]:
        return self.confirmed.read_text("utf-8").splitlines()


class Company:
    """Use it as a context manager: at the end every program is gone."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._handled = directory / "handled.txt"
        self._handled.touch()
        self._log = directory / "stderr.txt"
        self._producers: dict[str, _Producer] = {}
        self._past: list[_Producer] = []
        self._consumers: dict[str, subprocess.Popen[bytes]] = {}
        self._orders: list[Order] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for producer in self._producers.values():
            assert producer.process.stdin is not None
            producer.process.stdin.close()
            producer.process.kill()
            producer.process.wait()
        for consumer in self._consumers.values():
            consumer.kill()
            consumer.wait()
        if error is not None:
            print(self._log.read_text("utf-8", "backslashreplace")[-4000:])  # noqa: T201 - beside a failure

    def produce_with(self, command: Sequence[str]) -> str:
        """Start a producer, and return what it is called here."""
        name = f"producer {len(self._past) + len(self._producers)}"
        confirmed = self._directory / f"{name}.ndjson"
        self._producers[name] = _Producer(command, confirmed, self._log)
        return name

    def consume_with(self, command: Sequence[str]) -> str:
        """Start a consumer, and return how its lines begin."""
        name = next(word for word in command if "/" in word and "python" not in Path(word).name)
        with self._handled.open("ab") as output, self._log.open("ab") as errors:
            self._consumers[name] = subprocess.Popen(command, stdout=output, stderr=errors, env=_environ())
        return name

    async def retire(self, name: str) -> None:
        """Let a producer come to its end: its standard input has one."""
        producer = self._producers.pop(name)
        self._past.append(producer)
        assert producer.process.stdin is not None
        producer.process.stdin.close()
        assert await asyncio.to_thread(producer.process.wait, SECONDS) == 0

    async def stop(self, name: str) -> None:
        """Stop a consumer by SIGTERM, between two orders."""
        process = self._consumers.pop(name)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, SECONDS) == 0

    async def trade(self, each: int = 2) -> None:
        """Have every customer order so often, by whichever producer is his now; return when all is confirmed."""
        producers = list(self._producers.values())
        for round_ in range(each):
            for at in range(_CUSTOMERS):
                producer = producers[at % len(producers)]
                order = Order(f"o-{len(self._orders)}-{round_}", f"c-{at}")
                self._orders.append(order)
                producer.orders.append(order)
                assert producer.process.stdin is not None
                producer.process.stdin.write(f"{order.name} {order.customer} {order.text}\n")
                producer.process.stdin.flush()
        await self._until(
            lambda: all(len(p.lines()) == len(p.orders) for p in producers),
            lambda: [(p.process.args, len(p.lines()), len(p.orders)) for p in producers],
        )

    async def trade_until_all_work(self) -> None:
        """Go on until each consumer has done something since, and nothing is left to do."""
        before = len(self._lines())
        loop = asyncio.get_running_loop()
        until = loop.time() + SECONDS
        while (idle := self._consumers.keys() - {line[0] for line in self._lines()[before:]}) and loop.time() < until:
            await self.trade()
            await asyncio.sleep(0.2)
        assert not idle, f"these have nothing to do: {idle}"
        await self.all_handled()

    async def all_handled(self) -> None:
        """Wait until each order has been handled."""
        await self._until(lambda: not self._open(), lambda: (len(self._orders), sorted(self._open())[:10]))

    def verdict(self) -> Verdict:
        """Judge everything; what consumers saw of keys and headers is right too."""
        book = Book()
        sequences: defaultdict[str, int] = defaultdict(int)
        confirmed = {o.name for p in self._all_producers() for o, _ in zip(p.orders, p.lines(), strict=False)}
        for order in self._orders:
            attempt = book.attempt(order.name, order.customer, sequences[order.customer], order.text.encode())
            sequences[order.customer] += 1
            book.answered(attempt, Answer.STORED if order.name in confirmed else Answer.UNKNOWN)
        customers = {order.name: order.customer for order in self._orders}
        for who, what, text, *more in self._lines():
            name = text.partition(":")[0]
            if what == "billing":
                assert more == [customers[name], _REGION], (who, text, more)
                book.ask(book.deliver(GROUP, name, text.encode(), 1, who))
            else:
                last = [each for each in book.handed[GROUP] if each.name == name and each.by == who][-1]
                book.finish(last)
        return judge(book, GROUP)

    def write_ledger(self, file: Path) -> None:
        """Write what was confirmed to all producers."""
        lines = [line for producer in self._all_producers() for line in producer.lines()]
        assert len({json.loads(line)["messageId"] for line in lines}) == len(self._orders)
        file.write_text("".join(f"{line}\n" for line in lines), "utf-8")

    def _all_producers(self) -> list[_Producer]:
        return [*self._past, *self._producers.values()]

    def _lines(self) -> list[list[str]]:
        return [line.split() for line in self._handled.read_text("utf-8").splitlines()]

    def _open(self) -> set[str]:
        done = {line[2].partition(":")[0] for line in self._lines()}
        return {order.name for order in self._orders} - done

    async def _until(self, done: Callable[[], bool], said: Callable[[], object]) -> None:
        until = asyncio.get_running_loop().time() + SECONDS
        while not done():
            dead = [p.args for p in self._consumers.values() if p.poll() is not None]
            assert not dead, f"ended by themselves: {dead}"
            assert asyncio.get_running_loop().time() < until, said()
            await asyncio.sleep(0.05)


def _environ() -> dict[str, str]:
    """Without our settings, and without what makes Python write a line in two pieces."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("OMS_", "PYTHON"))}
