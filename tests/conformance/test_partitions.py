"""Which partition a message goes to."""

from typing import Final

import pytest

from .conversation import Conversation, Target, refused

PROBED = 64
MURMUR2: Final = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
    "kafka": 0xD067CF64,
    "giberish123456789": 0x8F552B0C,
    "1234": 0x9FC97B14,
    "234": 0xE7C009CA,
    "34": 0x873930DA,
    "4": 0x5A4B5CA1,
    "PreAmbleWillBeRemoved,ThePrePartThatIs": 0x78424F1C,
    "reAmbleWillBeRemoved,ThePrePartThatIs": 0x4A62B377,
    "": 0x106E08D9,
    "Zürich": 0xA38B7831,
    "顧客": 0x2DEE9452,
    "a" * 300: 0x3BF9F62E,
}
"""What other clients of Kafka compute: the first six are of the Java client's own test, those up to the empty key of
librdkafka's, the rest as kafka-python computes them."""


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


async def test_a_delivery_names_the_partition(talk: Conversation) -> None:
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
    for key, murmur2 in MURMUR2.items():
        answer = await talk.produce(messagekey=key)
        if "x-oms-h-partition" not in answer.headers:
            pytest.skip("the bridge does not tell where a message went")
        assert answer.headers["x-oms-h-partition"] == str((murmur2 & 0x7FFFFFFF) % count), key


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
