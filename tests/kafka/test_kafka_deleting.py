"""Deleting and purging topics and groups in a real Kafka, by an operator of one of two bridges."""

from pathlib import Path

from tests.deleting import check_callbacks, check_delete, check_purge, check_unknown, two_bridges
from tests.kafka.bridged import backend


async def test_a_group_and_a_topic_are_purged(tmp_path: Path, kafka_servers: str) -> None:
    async with two_bridges(tmp_path, backend(kafka_servers, partitions=2)) as two:
        await check_purge(two)


async def test_a_topic_is_deleted_under_two_bridges(tmp_path: Path, kafka_servers: str) -> None:
    async with two_bridges(tmp_path, backend(kafka_servers, partitions=2, lanes="true")) as two:
        await check_delete(two)


def test_callbacks_of_two_bridges_outlive_purge_and_delete(tmp_path: Path, kafka_servers: str) -> None:
    check_callbacks(tmp_path, backend(kafka_servers, partitions=2))


async def test_what_does_not_exist_is_unknown(tmp_path: Path, kafka_servers: str) -> None:
    async with two_bridges(tmp_path, backend(kafka_servers, partitions=2)) as two:
        await check_unknown(two)


async def test_a_group_that_another_bridge_serves_is_not_changed(tmp_path: Path, kafka_servers: str) -> None:
    async with two_bridges(tmp_path, backend(kafka_servers, partitions=1)) as two:
        await two.near.produce(b"a")
        await two.near.produce(b"b")
        await two.far.ack((await two.far.take()).receipt)
        for method, path in ("DELETE", ""), ("POST", "/purge"):
            answer = await two.change(method, f"/groups/{two.far.group}{path}")
            assert (answer.status_code, answer.json()["code"]) == (503, "backend-unavailable")
            assert "has members" in answer.json()["detail"]
        assert (await two.far.take()).body == b"b"
