"""The oldest RabbitMQ that the documents promise, and the newest that Debian has: the essential promises hold on both.

The other tests run on whichever RabbitMQ the machine has. Both of these come from packages, unpacked beside it.
"""

import asyncio
import os
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import pytest

from adapters.amqp.messages import Outgoing
from adapters.base import Stored
from adapters.rabbitmq.group.queues_and_history import Backfill
from adapters.rabbitmq.headers import MARKER
from adapters.rabbitmq.options import parse
from tests.bridged import bridged
from tests.brokers import packages
from tests.brokers.cache import Missing, filling
from tests.brokers.process import Process
from tests.brokers.rabbitmq import RabbitMQ
from tests.brokers.runtime import Runtime
from tests.conformance.conversation import now
from tests.conformance.judge import judge
from tests.ledger.client import Where, ask, http
from tests.ledger.run import GROUP, Progress, run
from tests.ledger.stage import Stage
from tests.rabbitmq.bridged import backend
from tests.rabbitmq.rooms import LAST, Holder, message, rooms

pytestmark = pytest.mark.extended

RELEASES: Final = {"oldest": ("bookworm",), "newest": ("sid", "trixie")}
"""Debian's releases, the first that can be fetched: bookworm has 3.10, trixie 4.0, sid the newest."""
BY_PRIORITY: Final = ("trixie", "sid")
"""Releases whose quorum queues deliver by priority: 4.0 two levels, 4.3 all."""
SERIES: Final = {"bookworm": (3, 10), "trixie": (4, 0), "sid": (4, 3)}
"""The version that each has; sid's may be newer."""

MESSAGES: Final = 3_000
YOUNG: Final = 8
"""Seconds after which a quorum queue survives a kill; see `test_rabbitmq_ledger`."""


class Served(NamedTuple):
    """A broker of one release."""

    release: str
    rabbit: RabbitMQ


@pytest.fixture(scope="module", params=RELEASES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Start a broker that the tests of a release share."""
    with _serving(RELEASES[request.param], tmp_path_factory) as found:
        yield found


@pytest.fixture(params=BY_PRIORITY)
def by_priority(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Start a broker."""
    with _serving((request.param,), tmp_path_factory) as found:
        yield found


@contextmanager
def _serving(releases: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    try:
        release, runtime = _runtime(releases)
    except Missing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    with RabbitMQ(runtime, tmp_path_factory.mktemp("rabbit") / "rabbit", settings={}, external=False) as rabbit:
        yield Served(release, rabbit)


def test_the_broker_has_the_version_it_stands_for(served: Served) -> None:
    version = tuple(int(part) for part in served.rabbit.ctl("version").strip().split(".")[:2])
    print(f"{served.release}: RabbitMQ {version}")  # noqa: T201 - which versions were judged
    assert version >= SERIES[served.release] if served.release == "sid" else version == SERIES[served.release]


def test_what_concerns_the_backend_in_the_conformance_suite(served: Served, tmp_path: Path) -> None:
    judge(backend(served.rabbit.url), tmp_path)


async def test_what_a_group_has_outlives_bridge_and_broker(served: Served, tmp_path: Path) -> None:
    """Messages, acknowledgements, delays, delivery counts and the log that a late group reads."""
    async with bridged(tmp_path / "one", backend(served.rabbit.url, prefix=(prefix := _prefix()))) as (_, talk):
        await talk.join()
        await talk.produce(b"taken", messagekey="a")
        await talk.produce(b"counted", messagekey="b")
        # due after the restart: the log of 3.10.8 may lose what it got just before a kill (docs/rabbitmq.md)
        due = now() + 40_000
        await talk.produce(b"delayed", messagekey="c", borntimestamp=due - 40_000, delaytime=40_000)
        for _ in range(2):
            taken = await talk.take()
            if taken.body == b"taken":
                await talk.ack(taken.receipt)
            else:
                await talk.nack(taken.receipt)
        again = await talk.take()
        assert (again.body, again.count) == (b"counted", 2)
        destination, group = talk.destination, talk.group
        await asyncio.sleep(YOUNG)  # the lease goes on: the restart below ends it
        await asyncio.to_thread(served.rabbit.restart)
    async with bridged(tmp_path / "two", backend(served.rabbit.url, prefix=prefix)) as (_, talk):
        talk.destination, talk.group = destination, group
        counts = {}
        for _ in range(2):  # whichever comes first: how long the restart takes is the broker's affair
            taken = await talk.take(waitmills=60_000)
            counts[taken.body] = taken.count
            assert taken.body != b"delayed" or now() >= due
            await talk.ack(taken.receipt)
        assert counts[b"counted"] >= 2, "what the broker counts must not begin anew"
        assert counts[b"delayed"] <= 2, "2 if the killed bridge had fetched it: its partition has no note of attempts"
        await talk.nothing()
        talk.group = "late"
        assert {taken.body for taken in await talk.take_all(4)} >= {b"taken", b"counted", b"delayed"}


async def test_the_ledger_over_kills(served: Served, tmp_path: Path) -> None:
    rabbit = served.rabbit
    with ExitStack() as closing:
        where = Where()
        stage = Stage(tmp_path, {where: backend(rabbit.url, instance=f"i{uuid4().hex[:8]}")}, closing)
        await stage.start(where)

        async def story(progress: Progress) -> None:
            await progress.reach(0.3)
            await stage.kill(where)
            await stage.start(where)
            await progress.reach(0.6)
            await asyncio.to_thread(rabbit.restart)

        destination = f"ledger-{uuid4().hex}"
        async with http() as client:
            asking = {"x-oms-source": destination, "x-oms-consumerid": GROUP, "x-oms-waitmills": "0"}
            assert (await ask(client, "GET", f"{await where.url()}/v1/messages", asking)).status == 204
        await asyncio.sleep(YOUNG)
        for verdict in await run([where], destination, MESSAGES, story):  # the second one is a late group's
            print(f"\nRabbitMQ of {served.release}: {verdict}")  # noqa: T201 - the counts are the result
            assert verdict.good, str(verdict)
            assert verdict.counts["answered stored"] >= MESSAGES


@pytest.mark.parametrize("priorities", [(*(10,) * 8, 1, None), (None,) * 10])
async def test_a_late_group_gets_messages_of_all_priorities_once(
    by_priority: Served, monkeypatch: pytest.MonkeyPatch, priorities: tuple[int | None, ...]
) -> None:
    """Those of its history, behind none of which the end may come, and those that are in its queue as well."""
    options = parse(f"{by_priority.rabbit.url}?prefix={_prefix()}&partitions=1")
    orders, mark, numbers = f"orders-{uuid4().hex[:8]}", Backfill._mark, count()
    async with rooms(options) as bridge:
        send = bridge.copying.send

        async def produce() -> None:
            for priority in priorities * 6:
                await bridge.publish(message(orders, b"%d" % next(numbers), priority=priority))

        async def mark_late(backfill: Backfill, step: str) -> None:
            if step == "b":  # the queue is bound: these are in the log and in the queue
                await produce()
            await mark(backfill, step)

        async def send_late(sent: asyncio.Future[Stored]) -> Stored:
            stored = await sent
            for _ in range(20):
                await bridge.publish(message(orders, b"%d" % next(numbers)))
            return stored

        def send_end(outgoing: Outgoing) -> asyncio.Future[Stored]:
            is_end = str((outgoing.properties.headers or {}).get(MARKER)).startswith("end of")
            return asyncio.ensure_future(send_late(send(outgoing))) if is_end and late.pop() else send(outgoing)

        late = [False, False, True]
        monkeypatch.setattr(Backfill, "_mark", mark_late)
        monkeypatch.setattr(bridge.copying, "send", send_end)
        await bridge.destinations.partitions(orders)
        await produce()
        sources = await bridge.sources(orders)
        assert sources[0].history is not None
        if priorities[0] is None:  # what comes behind the marker stays
            answer = await bridge.ask("queue_declare", queue=sources[0].queue, passive=True)
            assert answer.message_count >= 20
        await bridge.publish(message(orders, LAST, priority=1))  # 4.3 delivers it behind all others
        assert await Holder(bridge, sources[0]).run() == [b"%d" % number for number in range(next(numbers))]


@cache
def _runtime(releases: tuple[str, ...]) -> tuple[str, Runtime]:
    """Return a release and how its RabbitMQ runs here; Missing with what lacks."""
    lacks = []
    for release in releases:
        try:
            with filling():
                root = shlex.quote(str(packages.unpacked(release)))
        except Missing as missing:
            lacks.append(f"{release}: {missing}")
        else:
            return release, Runtime(f'PATH={root}/usr/lib/erlang/bin:"$PATH" {root}/usr/lib/rabbitmq/bin/', Process)
    raise Missing(f"No RabbitMQ of a release that is needed. {' '.join(lacks)}")


def _prefix() -> str:
    return f"t{uuid4().hex[:8]}."
