"""`properties=plain`: the properties of HTTP producers are headers of their own names to native programs."""

import asyncio
from pathlib import Path

import pytest
from pika import BasicProperties

from tests.conformance.conversation import refused
from tests.rabbitmq import natives
from tests.rabbitmq.bridged import backend, bridged

REGION = (b"x-oms-p-region", b"eu")


async def test_properties_have_their_own_names_in_both_directions(tmp_path: Path, rabbitmq_url: str) -> None:
    url = backend(rabbitmq_url, properties="plain", partitions=1)
    async with bridged(tmp_path, url) as (_, talk):
        await talk.produce(b"creates the exchange")
        queue = await asyncio.to_thread(natives.queue_of, rabbitmq_url, "quorum", exchange=talk.destination)
        await talk.produce(b"http", [REGION, (b"x-oms-p-%4frder%49d", b"7"), (b"x-oms-p-x-team", b"a")], priority=9)
        (got,) = await asyncio.to_thread(natives.take, rabbitmq_url, queue, 1)
        headers = got.properties.headers
        assert (headers["region"], headers["OrderId"], headers["x-team"], headers["oms_h_priority"]) == (
            *("eu", "7", "a"),
            9,
        )
        assert not [name for name in headers if name.startswith("oms_p_")]
        native = natives.Sent(b"native", "p0", BasicProperties(headers={"region": "us", "oms_p_old": "1"}))
        await asyncio.to_thread(natives.write, rabbitmq_url, talk.destination, [native])
        taken = {each.body: each.headers for each in await talk.take_all(3)}
        assert (taken[b"http"]["x-oms-p-region"], taken[b"http"]["x-oms-p-%4frder%49d"]) == ("eu", "7")
        assert taken[b"http"]["x-oms-p-x-team"] == "a"
        assert (taken[b"native"]["x-oms-p-region"], taken[b"native"]["x-oms-p-old"]) == ("us", "1")


async def test_a_delayed_message_keeps_the_names(tmp_path: Path, rabbitmq_url: str, prefix: str) -> None:
    url = backend(rabbitmq_url, properties="plain", partitions=1, prefix=prefix)
    async with bridged(tmp_path, url) as (_, talk):
        await talk.join()
        await talk.produce(b"later", [REGION], delaytime=300)
        assert (await talk.take()).headers["x-oms-p-region"] == "eu"


@pytest.mark.extended
async def test_bridges_with_either_value_share_a_destination(tmp_path: Path, rabbitmq_url: str) -> None:
    plain = backend(rabbitmq_url, properties="plain", partitions=1)
    prefixed = plain.replace("properties=plain", "properties=prefixed")
    async with bridged(tmp_path / "a", plain) as (_, one), bridged(tmp_path / "b", prefixed) as (_, other):
        other.destination = one.destination
        for talk in one, other:
            await talk.produce(b"", [REGION])
        for talk in one, other:
            assert [taken.headers["x-oms-p-region"] for taken in await talk.take_all(2)] == ["eu", "eu"]


async def test_a_name_that_would_be_read_as_a_field_is_refused(tmp_path: Path, rabbitmq_url: str) -> None:
    async with bridged(tmp_path, backend(rabbitmq_url, properties="plain", create="false")) as (_, talk):
        for name in "oms_h_priority", "traceparent", "oms_p_region", "x-death", "CC":
            told = f"x-oms-p-{''.join(c if c.islower() or not c.isalpha() else f'%{ord(c):02x}' for c in name)}"
            answer = await talk.post(b"", [(told.encode(), b"1")])
            assert f"the property {name} would collide" in refused(answer, 400, "header-invalid")
