"""The order in which the parts of the delays are closed."""

from typing import cast

from adapters.kafka.admin import Admin
from adapters.kafka.delay.delays import Delays, Forwarder
from adapters.kafka.deletion import Purges
from adapters.kafka.options import Options
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
