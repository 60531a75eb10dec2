"""Tests for `Adapter.publish`."""
# ruff: noqa: S101 - the kit's tests use assert, as all tests do

import asyncio
import gzip
from collections.abc import Sequence
from typing import Final

import pytest

from adapters.base import Adapter, Partitioned, PublishesMany, Stored
from adapters.testing.harness import GUARD, Contract, Session, bodies, numbered
from bridge.errors import NotStored, PartitionUnknown
from bridge.message import INTEGER_MAX, Message

_HOUR: Final = 3_600_000
_EVERY_BYTE: Final = bytes(range(256))


class PublishContract(Contract):
    """Part of `AdapterContract`."""

    async def test_every_field_is_delivered_unchanged(self, session: Session) -> None:
        """Tests "An adapter keeps every field of it as it is".

        A gzip body may be compressed again, if it inflates to the same bytes.
        """
        adapter = await session.open()
        bare = await session.message(adapter, _EVERY_BYTE)
        whole = bare._replace(
            message_id="Ñandú-1",
            properties={"plain": "a", "ünï": "cödé ✓", "empty": "", "UPPER": "%41 \t", "日本": "語"},
            born_host="höst",
            qos=0,
            message_key="ключ",
            correlation_id="кор 1",
            trace_id="0af7651916cd43dd8448eb211c80319c",
            transaction_id="tx ü",
            delay_time=0,
            expire_time=(bare.born_timestamp or 0) + _HOUR,
            priority=9,
            durability=1,
            content_type="text/plain; charset=utf-8",
            traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            tracestate="vendor=1",
        )
        sent = [
            bare,
            whole,
            whole._replace(message_id="other", trace_id="any text ✓", traceparent=None, tracestate=None),
            whole._replace(message_id="gzip", body=gzip.compress(_EVERY_BYTE), compression="gzip"),
            bare._replace(message_id="empty", body=b""),
            bare._replace(message_id="large", body=_EVERY_BYTE * 1000),
        ]
        async with asyncio.timeout(GUARD):
            await asyncio.gather(*(adapter.publish(each) for each in sent))
        reader = await session.reader(adapter)
        found = await reader.take(len(sent))
        by_id = {each.message_id: _comparable(each) for each in sent}
        assert {each.message.message_id: _comparable(each.message) for each in found} == by_id
        assert [each.attempts for each in found] == [0] * len(sent)

    async def test_concurrent_publishes_keep_their_order_within_a_partition(self, session: Session) -> None:
        """Tests "Concurrent calls keep their order within a partition"."""
        adapter = await session.open()
        count = await session.partitions(adapter)
        messages = [
            await session.message(adapter, body, number, message_key=f"key {number % 7}")
            for number, body in enumerate(numbered(300))
        ]
        futures = [adapter.publish(each) for each in messages]
        async with asyncio.timeout(GUARD):
            stored = await asyncio.gather(*futures)
        reader = await session.reader(adapter)
        found = await reader.take(len(messages))
        for partition in range(count) if isinstance(adapter, Partitioned) else [None]:
            sent = [each.body for each in messages if each.partition == partition]
            assert [each.message.body for each in found if each.message.partition == partition] == sent
            offsets = [at.offset for at, each in zip(stored, messages, strict=True) if each.partition == partition]
            known = [offset for offset in offsets if offset is not None]
            assert known == sorted(set(known)), "offsets grow in the order of publishing"
        reported = [(at.partition, each.partition) for at, each in zip(stored, messages, strict=True)]
        assert all(partition is None or partition == requested for partition, requested in reported)

    @pytest.mark.parametrize("durability", [0, 1])
    async def test_a_message_is_delivered_with_each_durability(self, session: Session, durability: int) -> None:
        """Tests "The future is done when the message is stored as its `durability` asks"."""
        adapter = await session.open()
        await session.publish(adapter, b"0", durability=durability, qos=0)
        await session.publish(adapter, b"1", durability=durability, qos=1)
        reader = await session.reader(adapter)
        await session.publish(adapter, b"2", durability=durability)
        assert sorted(bodies(await reader.take(3))) == [b"0", b"1", b"2"]

    async def test_cancelling_the_caller_does_not_withdraw_a_message(self, session: Session) -> None:
        """Tests "A caller that no longer waits does not withdraw the message"."""
        adapter = await session.open()
        waiting = asyncio.create_task(session.publish(adapter, b"a"))
        message = await session.message(adapter, b"b")
        task = asyncio.create_task(_wait_for(adapter.publish(message)))
        await asyncio.sleep(0)
        task.cancel()
        await waiting
        reader = await session.reader(adapter)
        assert sorted(bodies(await reader.take(2))) == [b"a", b"b"]

    async def test_publish_raises_through_its_future(self, session: Session) -> None:
        """Tests "It raises `NotStored`, `OutcomeUnknown` or a `Rejected`; the call itself does not raise"."""
        adapter = await session.open()
        message = await session.message(adapter, b"a")
        await adapter.close()
        future = adapter.publish(message)
        async with asyncio.timeout(GUARD):
            with pytest.raises(NotStored):
                await future


class PublishesManyContract(Contract):
    """Tests for an adapter that is `PublishesMany`."""

    async def test_many_messages_are_published_in_one_call(self, session: Session) -> None:
        """Tests "Store messages as calls of `publish` in the same order would"."""
        adapter = await session.open()
        messages = [
            await session.message(adapter, body, number, message_key=f"key {number % 7}")
            for number, body in enumerate(numbered(300))
        ]
        results = await _publish_many(adapter, messages)
        assert [type(each) for each in results] == [Stored] * len(messages)
        reader = await session.reader(adapter)
        found = await reader.take(len(messages))
        for partition in {each.partition for each in messages}:
            sent = [each.body for each in messages if each.partition == partition]
            assert [each.message.body for each in found if each.message.partition == partition] == sent

    async def test_each_of_many_messages_has_its_own_result(self, session: Session) -> None:
        """Tests "Returns one result for each, in the same order"."""
        adapter = await session.open()
        messages = [await session.message(adapter, body) for body in numbered(3)]
        wrong = messages[1]._replace(partition=INTEGER_MAX)
        results = await _publish_many(adapter, [messages[0], wrong, messages[2]])
        assert [type(each) for each in results] == [Stored, PartitionUnknown, Stored]
        await adapter.close()
        [closed] = await _publish_many(adapter, messages[:1])
        assert isinstance(closed, NotStored)


async def _publish_many(adapter: Adapter, messages: Sequence[Message]) -> list[Stored | BaseException]:
    """Return the results of all messages."""
    assert isinstance(adapter, PublishesMany)
    results: list[Stored | BaseException] = []
    async with asyncio.timeout(GUARD):
        for each in adapter.publish_many(messages):
            if isinstance(each, asyncio.Future):
                await asyncio.wait((each,))
                results.append(each.exception() or each.result())
            else:
                results.append(each)
    return results


async def _wait_for(future: asyncio.Future[Stored]) -> None:
    """Wait as the engine does: being cancelled does not cancel the future."""
    await asyncio.wait((future,))


def _comparable(message: Message) -> Message:
    """Return the message without the parts that an adapter may change."""
    body = gzip.decompress(message.body) if message.compression == "gzip" else message.body
    return message._replace(body=body, properties=dict(message.properties), delivery_count=None)
