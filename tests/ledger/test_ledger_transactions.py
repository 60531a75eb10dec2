"""Transactions over two destinations while everything is killed: each is visible whole, or not at all.

2,000 of three messages. Consumers get those that their producer decided to commit, and no others, whether the producer
lived on or was killed: then the bridge has asked for the decision.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

import pytest

from tests.brokers.provide import own_kafka, own_rabbitmq
from tests.http.callback_endpoint import Endpoint
from tests.kafka import bridged as kafka_bridge
from tests.kafka.natives import topic_of
from tests.kafka.watching import Watcher
from tests.ledger.client import ask, http
from tests.ledger.killing import TRANSACTIONS, Book, Ledger, Place, pulled
from tests.ledger.transacting import Step
from tests.rabbitmq import bridged as rabbitmq_bridge

pytestmark = pytest.mark.extended

DESTINATIONS = ("orders", "bills", "orders")
GROUP = "audit"
PARTS = range(len(DESTINATIONS))
YOUNG = 8
"""Seconds after which a quorum queue survives a kill (3.10.8; see `tests/rabbitmq/test_rabbitmq_ledger.py`)."""
ABOUT = 3.0
"""Seconds before a kill: what is confirmed from then on until the broker is back, its stream may lack (the same)."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint().listen()
    yield endpoint
    endpoint.close()


async def test_memory(tmp_path: Path, endpoint: Endpoint) -> None:
    with ExitStack() as closing:
        place = Place(tmp_path, f"memory://?journal={tmp_path / 'journal'}")
        ledger = Ledger(place, DESTINATIONS, endpoint, closing)
        await ledger.begin()
        await ledger.run()
        found = await pulled(await ledger.where.url(), DESTINATIONS, GROUP)
    judge(ledger.book, found)


async def test_kafka(tmp_path: Path, endpoint: Endpoint) -> None:
    """A native consumer of committed records reads all the time."""
    with own_kafka(tmp_path / "kafka") as kafka, ExitStack() as closing:
        orders, bills = topic_of(kafka.bootstrap, 2), topic_of(kafka.bootstrap, 1)
        place = Place(tmp_path, kafka_bridge.backend(kafka.bootstrap, instance="ledger"), kafka)
        ledger = Ledger(place, (orders, bills, orders), endpoint, closing)
        await ledger.begin()
        with Watcher(kafka.bootstrap, [orders, bills]) as watcher:
            await ledger.run()
    found: dict[str, Counter[str]] = {}
    for record in watcher.records:
        assert record.key is not None
        assert record.value is not None
        found.setdefault(record.key.decode(), Counter())[record.value.decode()] += 1
    judge(ledger.book, found)
    for partition in range(2):
        read = [record.key for record in watcher.records if (record.topic, record.partition) == (orders, partition)]
        assert len([*groupby(read)]) == len(set(read)), "a transaction was read in part, then another one"


async def test_rabbitmq(tmp_path: Path, endpoint: Endpoint) -> None:
    with own_rabbitmq(tmp_path / "rabbit") as rabbit, ExitStack() as closing:
        place = Place(tmp_path, rabbitmq_bridge.backend(rabbit.url, instance="ledger"), rabbit)
        ledger = Ledger(place, DESTINATIONS, endpoint, closing)
        await _have_group(await ledger.begin())
        await ledger.run()
        found = await pulled(await ledger.where.url(), DESTINATIONS, GROUP)
    judge(ledger.book, found, doubled=ledger.book.interrupted(ABOUT))


def judge(book: Book, found: Mapping[str, Counter[str]], doubled: frozenset[str] | set[str] = frozenset()) -> None:
    """Check what was found, messageIds by transaction, against what the producers have decided."""
    decided = book.steps[Step.DECIDED].keys()
    counts = {str(step): len(names) for step, names in book.steps.items()}
    twice = {name for name, messages in found.items() if any(count > 1 for count in messages.values())}
    print(f"\n{counts}, kills {len(book.kills)}, producers {book.lives - 1}, doubled {len(twice)}")  # noqa: T201 - the result
    assert len(book) >= TRANSACTIONS
    assert len(decided) > TRANSACTIONS // 3
    assert {name: set(messages) for name, messages in found.items()} == {
        name: {f"{name}.{number}" for number in PARTS} for name in decided
    }
    assert twice <= doubled


async def _have_group(url: str) -> None:
    """Make the group's queues, which get everything: a later group reads the log, of which a kill may take the end."""
    async with http() as client:
        for destination in set(DESTINATIONS):
            asking = {"x-oms-source": destination, "x-oms-consumerid": GROUP, "x-oms-waitmills": "0"}
            assert (await ask(client, "GET", f"{url}/v1/messages", asking)).status == 204
    await asyncio.sleep(YOUNG)
