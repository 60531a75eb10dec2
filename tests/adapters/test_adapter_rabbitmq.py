"""The RabbitMQ backend passes the adapter test kit."""

from collections.abc import Callable, Iterator

import pytest

from adapters.base import Deferring, Deletable
from adapters.testing import (
    AdapterContract,
    DeferringContract,
    DeletableContract,
    DeletableDelayContract,
    DurableContract,
    Harness,
    MetadataStoreContract,
    Session,
    SharedContract,
    TransactionalContract,
    UnreachableContract,
)
from adapters.testing.harness import bodies
from adapters.wall_clock import wall
from tests.rabbitmq.bridged import backend
from tests.rabbitmq.waiting import levels_of_their_own


@pytest.fixture(scope="module")
def prefix(rabbitmq_at_hand: Callable[[], str]) -> Iterator[str]:
    """One set of delay queues for all tests of the module; they are gone after it."""
    with levels_of_their_own(rabbitmq_at_hand()) as found:
        yield found


class TestRabbitMQ(
    AdapterContract,
    DurableContract,
    SharedContract,
    MetadataStoreContract,
    DeferringContract,
    DeletableContract,
    TransactionalContract,
    UnreachableContract,
):
    @pytest.fixture
    def harness(self, rabbitmq_url: str, prefix: str, unused_port: int) -> Harness:
        url = backend(rabbitmq_url, partitions=3, prefix=prefix)
        return Harness("adapters.rabbitmq:connect", url, unreachable_url=f"amqp://127.0.0.1:{unused_port}/%2F")


@pytest.mark.extended
class TestRabbitMQDelays(DeletableDelayContract):
    @pytest.fixture
    def harness(self, rabbitmq_url: str, prefix: str) -> Harness:
        return Harness("adapters.rabbitmq:connect", backend(rabbitmq_url, partitions=3, prefix=prefix))

    async def test_what_a_group_has_deferred_is_dropped_with_its_messages(self, session: Session) -> None:
        """A delayed message of the destination stays for the group."""
        adapter = await session.open()
        assert isinstance(adapter, Deletable)
        reader = await session.reader(adapter)
        await session.publish(adapter, b"deferred")
        [delivery] = await reader.take(1)
        assert isinstance(reader.subscription, Deferring)
        await reader.subscription.defer(delivery, wall() + 6_000)
        reader.unsettled.clear()
        await session.publish(adapter, b"delayed", delay_time=7_000)
        await reader.close()
        await adapter.purge(session.destination, "group")
        again = await session.reader(adapter)
        assert bodies(await again.take(1)) == [b"delayed"]
