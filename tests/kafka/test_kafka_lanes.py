"""With `lanes=true` a message of high priority overtakes a whole backlog, not only what the bridge has fetched."""

import json
from pathlib import Path
from typing import Final

import pytest

from adapters.kafka.names import HIGH, LOW
from tests.conformance.conversation import Conversation
from tests.kafka import natives
from tests.kafka.bridged import backend, bridged

BACKLOG: Final = 3_000
WINDOW: Final = 100
"""Messages that the bridge fetches ahead: what is not among them has not competed without lanes."""


async def test_a_high_one_overtakes_a_backlog_and_low_ones_come_last(tmp_path: Path, kafka_servers: str) -> None:
    places = await _places_behind_a_backlog(tmp_path, backend(kafka_servers, lanes="true"))
    assert places["high"] < 3 * WINDOW
    assert places["low"] > BACKLOG - WINDOW


@pytest.mark.extended
async def test_without_lanes_it_waits_until_it_is_fetched(tmp_path: Path, kafka_servers: str) -> None:
    places = await _places_behind_a_backlog(tmp_path, backend(kafka_servers, partitions=1))
    assert places["high"] > BACKLOG - 3 * WINDOW


@pytest.mark.extended
async def test_it_overtakes_while_the_backlog_is_being_worked_off(tmp_path: Path, kafka_servers: str) -> None:
    async with bridged(tmp_path, backend(kafka_servers, lanes="true"), **_WINDOWED) as (_, talk):
        await _store(talk, [("normal", 5)] * BACKLOG)
        await talk.take_all(10)
        await talk.produce(b"high", priority=10)
        bodies = []
        while b"high" not in bodies:
            bodies += [taken.body for taken in await talk.take_all(1)]
        assert len(bodies) < 3 * WINDOW


async def test_natives_find_three_topics(tmp_path: Path, kafka_servers: str) -> None:
    async with bridged(tmp_path, backend(kafka_servers, lanes="true", partitions=3)) as (_, talk):
        told = {}
        for priority in range(1, 11):
            answer = await talk.produce(b"%d" % priority, priority=priority, messagekey="one key")
            told[b"%d" % priority] = answer.headers["x-oms-h-partition"]
        await talk.produce(b"none", messagekey="one key")
        found = {}
        for suffix, count in (("", 2), (HIGH, 5), (LOW, 4)):
            records = natives.read(kafka_servers, talk.destination + suffix, count)
            assert len({record.partition for record in records}) == 1, "one key, one partition"
            found[suffix] = [record.value for record in records]
        assert found == {"": [b"5", b"none"], HIGH: [b"6", b"7", b"8", b"9", b"10"], LOW: [b"1", b"2", b"3", b"4"]}
        taken = {each.body: each for each in await talk.take_all(11)}
        assert len(taken) == 11
        assert {each.headers["x-oms-h-destination"] for each in taken.values()} == {talk.destination}
        assert {body: taken[body].headers["x-oms-h-partition"] for body in told} == told


async def test_a_key_keeps_its_order_within_a_lane_and_loses_it_across(tmp_path: Path, kafka_servers: str) -> None:
    """What lanes cost, and docs/kafka.md says: without them the high one would wait for its key's first."""
    async with bridged(tmp_path, backend(kafka_servers, lanes="true")) as (_, talk):
        for number in range(3):
            await talk.produce(b"normal %d" % number, messagekey="k")
            await talk.produce(b"high %d" % number, messagekey="k", priority=9)
        came = [taken.body for taken in await talk.take_all(6)]
        assert [body for body in came if body.startswith(b"normal")] == [b"normal 0", b"normal 1", b"normal 2"]
        assert [body for body in came if body.startswith(b"high")] == [b"high 0", b"high 1", b"high 2"]
        assert came[0] == b"high 0"


@pytest.mark.extended
async def test_what_is_settled_in_each_lane_survives_a_restart(tmp_path: Path, kafka_servers: str) -> None:
    url = backend(kafka_servers, lanes="true", partitions=2)
    destination = group = ""
    async with bridged(tmp_path / "first", url) as (bridge, talk):
        destination, group = talk.destination, talk.group
        await _store(talk, [("normal", 5), ("high", 10), ("low", 1)] * 10)
        taken = [await talk.take() for _ in range(20)]
        done = taken[1::3]  # of each partition some, and never the first
        for one in done:
            await talk.ack(one.receipt)
        settled = [one.headers["x-oms-h-messageid"] for one in done]
        bridge.kill()
    async with bridged(tmp_path / "second", url) as (_, talk):
        talk.destination, talk.group = destination, group
        later = [one.headers["x-oms-h-messageid"] for one in await talk.take_all(30 - len(settled))]
        await talk.nothing()
    assert len({*settled, *later}) == len(settled) + len(later) == 30


_WINDOWED: Final = {"OMS_LIMITS__PREFETCH": str(WINDOW)}


async def _places_behind_a_backlog(directory: Path, url: str) -> dict[str, int]:
    """Store low ones, a backlog and at last a high one; return where the high and the first low one came."""
    async with bridged(directory, url, **_WINDOWED) as (_, talk):
        await _store(talk, [("low", 1)] * 10 + [("normal", 5)] * BACKLOG)
        await talk.produce(b"high", priority=10)
        asked = {"version": "1.0.0", "source": talk.destination, "consumerid": talk.group, "waitmills": "20000"}
        asked["maxmessages"] = str(BACKLOG + 11)
        headers = {f"x-oms-{name}": value for name, value in asked.items()} | {"accept": "application/x-ndjson"}
        answer = await talk.http.get("/v1/push", headers=headers)
    *lines, end = [json.loads(line) for line in answer.text.splitlines() if line]
    assert end == {"end": "maxmessages"}
    kinds = [line["properties"].get("kind", "high") for line in lines]
    return {kind: kinds.index(kind) for kind in ("high", "low")}


async def _store(talk: Conversation, kinds: list[tuple[str, int]]) -> None:
    """Store messages in batches, each with its kind as a property."""
    for start in range(0, len(kinds), 1_000):
        batch = [
            {
                "header": {"destination": talk.destination},
                "extensionHeader": {"priority": priority},
                "properties": {"kind": kind},
            }
            for kind, priority in kinds[start : start + 1_000]
        ]
        headers = {"x-oms-version": "1.0.0", "content-type": "application/json"}
        answer = await talk.http.post("/v1/messages", json=batch, headers=headers)
        assert answer.status_code == 200, answer.text[:500]
