"""Dead letters on RabbitMQ: what keeps them where destinations keep nothing for later groups, or may not be created."""

from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pika

from tests.conformance.conversation import Conversation, refused
from tests.rabbitmq.bridged import backend, bridged
from tests.trouble import taken

ONE = {"OMS_DELIVERY__MAX_DELIVERIES": "1"}


async def test_dead_letters_are_kept_without_logs(tmp_path: Path, rabbitmq_url: str) -> None:
    """No group has pulled them yet; the key and the group go on."""
    async with bridged(tmp_path, backend(rabbitmq_url, log="false"), **ONE) as (_, talk):
        assert (await talk.get()).status_code == 204
        await _dead_lettered(talk, 3)
        dead = await talk.take_all(3, source=f"{talk.destination}.dlq", consumerid="later")
        assert {each.body for each in dead} == {b"poison 0", b"poison 1", b"poison 2"}
        assert {each.headers["x-oms-p-oms-dead-letter-group"] for each in dead} == {talk.group}


async def test_dead_letters_of_another_bridge_are_kept_although_it_made_no_log(
    tmp_path: Path, rabbitmq_url: str
) -> None:
    """As those of versions before: the destination is known to the catalogue, and its log was never made."""
    prefix = f"t{uuid4().hex[:8]}."
    url = backend(rabbitmq_url, log="false", prefix=prefix)
    async with bridged(tmp_path / "first", url, **ONE) as (_, talk):
        assert (await talk.get()).status_code == 204
        await _dead_lettered(talk, 1)
        destination, group = talk.destination, talk.group
    with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq_url))) as connection:
        connection.channel().queue_delete(f"{destination}.dlq.log")
    async with bridged(tmp_path / "second", url, **ONE) as (_, talk):
        talk.destination, talk.group = destination, group
        await _dead_lettered(talk, 1)
        assert (await talk.take(source=f"{destination}.dlq", consumerid="later")).body == b"poison 0"


async def test_a_group_is_refused_if_its_dead_letters_could_not_be_stored(tmp_path: Path, rabbitmq_url: str) -> None:
    """Neither may the bridge create their destination, nor is it there."""
    prefix = f"t{uuid4().hex[:8]}."
    async with bridged(tmp_path / "owner", backend(rabbitmq_url, prefix=prefix), **ONE) as (_, owner):
        await owner.produce(b"there")
        url = backend(rabbitmq_url, create="false", prefix=prefix)
        async with bridged(tmp_path / "other", url, **ONE) as (_, talk):
            talk.destination, missing = owner.destination, f"{owner.destination}.dlq"
            await talk.produce(b"there, too")
            assert f"its groups need {missing}" in refused(await talk.get(), 404, "destination-unknown")
            assert (await owner.get(source=missing)).status_code == 204
            assert await taken(talk, meanwhile={404}) == b"there"


async def _dead_lettered(talk: Conversation, count: int) -> None:
    """Produce messages of one key that fail once, and one behind them that is delivered then."""
    for number in range(count):
        await talk.produce(b"poison %d" % number, messagekey="k")
    await talk.produce(b"good", messagekey="k")
    for number in range(count):
        poison = await talk.take()
        assert poison.body == b"poison %d" % number
        await talk.nack(poison.receipt)
    last = await talk.take()
    assert last.body == b"good"
    await talk.ack(last.receipt)
