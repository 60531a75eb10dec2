"""`properties=plain`: the properties of HTTP producers are headers of their own names to native programs."""

from pathlib import Path

import pytest

from tests.conformance.conversation import refused
from tests.kafka import natives
from tests.kafka.bridged import backend, bridged


async def test_properties_have_their_own_names_in_both_directions(tmp_path: Path, kafka_servers: str) -> None:
    url = backend(kafka_servers, properties="plain", partitions=1)
    async with bridged(tmp_path, url) as (_, talk):
        await talk.produce(b"http", [(b"x-oms-p-region", b"eu"), (b"x-oms-p-%4frder%49d", b"7")], priority=9)
        natives.write(kafka_servers, talk.destination, [(None, b"native", [("region", b"us"), ("oms_p_old", b"1")])])
        http = dict(natives.read(kafka_servers, talk.destination, 1)[0].headers)
        assert (http["region"], http["OrderId"], http["oms_h_priority"]) == (b"eu", b"7", b"9")
        assert not [name for name in http if name.startswith("oms_p_")]
        first, second = await talk.take_all(2)
        assert (first.headers["x-oms-p-region"], first.headers["x-oms-p-%4frder%49d"]) == ("eu", "7")
        assert (second.headers["x-oms-p-region"], second.headers["x-oms-p-old"]) == ("us", "1")
        await talk.nothing()


@pytest.mark.extended
async def test_bridges_with_either_value_share_a_topic(tmp_path: Path, kafka_servers: str) -> None:
    plain, prefixed = (backend(kafka_servers, properties=value, partitions=1) for value in ("plain", "prefixed"))
    async with bridged(tmp_path / "a", plain) as (_, one), bridged(tmp_path / "b", prefixed) as (_, other):
        other.destination = one.destination
        for talk in one, other:
            await talk.produce(b"", [(b"x-oms-p-region", b"eu")])
        for talk in one, other:
            assert [taken.headers["x-oms-p-region"] for taken in await talk.take_all(2)] == ["eu", "eu"]


async def test_a_name_that_would_be_read_as_a_field_is_refused(tmp_path: Path, kafka_servers: str) -> None:
    async with bridged(tmp_path, backend(kafka_servers, properties="plain", create="false")) as (_, talk):
        for name in "oms_h_priority", "traceparent", "oms_p_region":
            answer = await talk.post(b"", [(f"x-oms-p-{name}".encode(), b"1")])
            assert f"the property {name} would collide" in refused(answer, 400, "header-invalid")
