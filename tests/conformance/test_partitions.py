"""Which partition a message goes to."""

import pytest

from bridge.engine.partition import partition_of

from .conversation import Conversation, Target, refused

PROBED = 64
KEYS = ("order-1", "order-2", "", "Zürich", "a" * 300, "顧客")


@pytest.fixture(autouse=True)
def _partitioned(bridge: Target) -> None:
    bridge.need("partition")


async def count_partitions(talk: Conversation) -> int:
    for number in range(PROBED):
        answer = await talk.post(b"probe", partition=number)
        if answer.status_code == 400:
            return number
        assert answer.status_code == 200, answer.text
    pytest.skip(f"the destination has {PROBED} partitions or more")


async def test_a_destination_has_partitions_and_no_more(talk: Conversation) -> None:
    """
    > - **Partition**: a destination has N partitions (Kafka: the topic's; elsewhere configured, default 8).

    > | partition | Integer >= 0 | client | 400 when the destination has no such partition |
    """
    count = await count_partitions(talk)
    assert count >= 1
    for number in (count, count + 1, 2**31 - 1):
        assert "partition" in refused(await talk.post(partition=number), 400, "partition-unknown")


async def test_an_explicit_partition_wins(bridge: Target, talk: Conversation) -> None:
    """
    > An explicit `partition` wins;
    """
    bridge.need("messageKey")
    for number in range(await count_partitions(talk)):
        answer = await talk.produce(partition=number, messagekey="any")
        assert answer.headers["x-oms-h-partition"] == str(number)


async def test_a_consumer_is_told_the_partition(talk: Conversation) -> None:
    """
    > An explicit `partition` wins;
    """
    await talk.produce(b"there", partition=0)
    assert (await talk.take()).headers["x-oms-h-partition"] == "0"


async def test_a_key_chooses_the_partition_as_the_java_client_does(bridge: Target, talk: Conversation) -> None:
    """
    > else murmur2(messageKey) mod N, the Java client's function, on every backend;
    """
    bridge.need("messageKey")
    count = await count_partitions(talk)
    for key in KEYS:
        answer = await talk.produce(pairs=[(b"x-oms-h-messagekey", key.encode())])
        if "x-oms-h-partition" not in answer.headers:
            pytest.skip("the bridge does not tell where a message went")
        assert answer.headers["x-oms-h-partition"] == str(partition_of(key, count))


async def test_messages_without_a_key_are_spread(talk: Conversation) -> None:
    """
    > else spread.
    """
    if await count_partitions(talk) == 1:
        pytest.skip("the destination has one partition")
    answers = [await talk.produce() for _ in range(32)]
    if "x-oms-h-partition" not in answers[0].headers:
        pytest.skip("the bridge does not tell where a message went")
    assert len({answer.headers["x-oms-h-partition"] for answer in answers}) > 1


async def test_a_pull_serves_every_partition(talk: Conversation) -> None:
    """
    > A pull serves whatever partition has something ready;
    """
    count = await count_partitions(talk)
    await talk.take_all(count)
    await talk.nothing()
