"""The page about moving from Kafka's clients, walked step by step there and back, every program on it at work."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from kafka import KafkaAdminClient

from tests.brokers.kafka import Kafka
from tests.brokers.provide import own_kafka
from tests.docs.page import Page
from tests.kafka import natives
from tests.kafka.bridged import backend
from tests.launch import Bridge
from tests.migrate.commands import commands, run
from tests.migrate.company import Company
from tests.migrate.programs import Programs

PAGE: Final = Page("migrate-from-kafka.md")
PARTITIONS: Final = 6


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Its own: the page's names of topics and groups are used as they are."""
    with own_kafka(tmp_path_factory.mktemp("brokers") / "kafka") as started:
        with closing(KafkaAdminClient(bootstrap_servers=started.bootstrap)) as admin:
            admin.create_topics({"orders": {"num_partitions": PARTITIONS}}, wait_for_metadata=True)
        yield started


async def _verify(company: Company, directory: Path, servers: str) -> None:
    company.write_ledger(directory / "confirmed.ndjson")
    found = commands(PAGE, "Verify")
    assert [command[2] for command in found] == ["once", "verify"]
    for command in found:
        done = await run(command, directory, {"localhost:9092": servers})
        assert done.returncode == 0, (done.stdout, done.stderr)


@pytest.mark.extended
@pytest.mark.usefixtures("archived_jvm")
async def test_nothing_is_lost_on_the_way_there_and_back(kafka: Kafka, tmp_path: Path) -> None:
    servers = kafka.bootstrap
    programs = Programs(PAGE, tmp_path / "programs")
    programs.compile()
    url = backend(servers)
    with (
        Company(tmp_path / "company") as company,
        Bridge(tmp_path / "producers", backend=url) as producing,
        Bridge(tmp_path / "consumers", backend=url) as consuming,
    ):
        native_producer = company.produce_with(programs.command("native_producer.py", servers))
        native_consumer = company.consume_with(programs.command("native_consumer.py", servers))
        await company.trade_until_all_work()
        [look] = commands(PAGE, "Check the topic first")
        looked = await run(look, tmp_path, {"localhost:9092": servers})
        assert looked.returncode == 0, looked.stdout

        commanded = (  # step 3, beside the native one
            programs.command("http_consumer.py", consuming.url),
            programs.command("curl_consumer.sh", consuming.url),
            programs.command("orders", consuming.url, "consume"),
        )
        consumers = [company.consume_with(command) for command in commanded]
        await company.trade_until_all_work()
        await company.stop(native_consumer)
        await company.trade_until_all_work()

        commanded = (  # step 4, beside the native one
            programs.command("http_producer.py", producing.url),
            programs.command("curl_producer.sh", producing.url),
            programs.command("orders", producing.url, "produce"),
        )
        producers = [company.produce_with(command) for command in commanded]
        await company.trade_until_all_work()
        await company.retire(native_producer)
        await company.trade_until_all_work()
        await _verify(company, tmp_path, servers)

        company.produce_with(programs.command("native_producer.py", servers))  # back, step 4
        await company.trade_until_all_work()
        for producer in producers:
            await company.retire(producer)
        await company.trade_until_all_work()
        company.consume_with(programs.command("native_consumer.py", servers))  # back, step 3
        await company.trade_until_all_work()
        for consumer in consumers:
            await company.stop(consumer)
        assert consuming.terminate() == 0
        await company.trade_until_all_work()
        await _verify(company, tmp_path, servers)
        verdict = company.verdict()
        print(f"\nKafka, there and back: {verdict}")  # noqa: T201 - the counts are the result
        assert verdict.good, str(verdict)
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        settled = sum(at.offset for at in admin.list_group_offsets("billing")["billing"].values())
    assert settled == len(natives.everything(servers, "orders")), "nothing is left to the group"
