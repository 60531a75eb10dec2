"""The order in which the parts of the delays are closed."""

from typing import cast

import pytest

from adapters.kafka.admin import Admin
from adapters.kafka.delay.delays import Delays, Forwarder
from adapters.kafka.deletion import Purges
from adapters.kafka.options import METADATA_AGE, Options
from adapters.kafka.produce.publisher import Publisher
from adapters.kafka.topics import Cluster, Topics


class Closed:
    """Notes in a list that it was closed."""

    def __init__(self, name: str, closed: list[str]) -> None:
        self._name, self._closed = name, closed

    async def close(self) -> None:
        self._closed.append(self._name)


async def test_marks_of_purges_are_read_until_the_forwarder_is_closed() -> None:
    """Otherwise it begins to read them once more, and that reading outlives the adapter."""
    closed: list[str] = []
    cluster = Cluster(Options(("nowhere",)), cast("Admin", None), cast("Topics", None), cast("Publisher", None))
    delays = Delays(cluster, cast("Purges", Closed("purges", closed)))
    delays._forwarder = cast("Forwarder", Closed("forwarder", closed))
    await delays.close()
    assert closed == ["forwarder", "purges"]


class Partitions:
    """A publisher that knows every topic."""

    on_removed = None

    async def partitions(self, _topic: str) -> int:
        return 2


async def test_of_ten_thousand_destinations_the_last_ones_are_known() -> None:
    topics = Topics(Options(("nowhere",)), cast("Admin", None), cast("Publisher", Partitions()))
    for number in range(10_005):
        assert await topics.partitions(f"d{number}", create=False) == 2
    assert topics.known_partitions("d4") is None
    assert [topics.known_partitions(f"d{number}") for number in (5, 10_004)] == [2, 2]
    await topics.close()


def test_the_forwarder_forgets_topics_that_it_has_not_written_to_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("adapters.kafka.delay.delays.monotonic", lambda: now)
    forwarder = Forwarder.__new__(Forwarder)
    forwarder._counts = {}
    for number in range(300):
        forwarder._remember(f"d{number % 200}", 2)
        now += 1
    forwarder._remember("last", 2)
    assert len(forwarder._counts) == METADATA_AGE / 1000
