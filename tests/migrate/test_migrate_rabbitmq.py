"""The page about moving from RabbitMQ's clients, walked step by step there and back, every program on it at work."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.brokers.provide import own_rabbitmq
from tests.brokers.rabbitmq import RabbitMQ
from tests.docs.page import Page
from tests.launch import Bridge
from tests.migrate.commands import commands, run
from tests.migrate.company import Company
from tests.migrate.programs import Programs, blocks
from tests.rabbitmq import natives

PAGE: Final = Page("migrate-from-rabbitmq.md")
SHARED: Final = Page("migrate-from-kafka.md")
ADDRESS: Final = "amqp://guest:guest@localhost:5672"


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """Its own: the page's names of exchanges and queues are used as they are."""
    with own_rabbitmq(tmp_path_factory.mktemp("brokers") / "rabbitmq") as started:
        with natives.channel(started.url) as channel:
            channel.exchange_declare("shop", "topic", durable=True)
            channel.queue_declare("billing", durable=True)
            channel.queue_bind("billing", "shop", "order.created")
        yield started


def _entries(directory: Path) -> Path:
    """Write the page's file of destinations."""
    [text] = re.findall(r"```yaml\n(# destinations\.yaml\n.*?)```", PAGE.text, re.DOTALL)
    file = directory / "destinations.yaml"
    file.write_text(text, "utf-8")
    return file


def _http_programs() -> dict[str, str]:
    """Return those of the other page, changed as this one says."""
    [(new, old)] = re.findall(r"`(x-oms-h-\w+)` in place of `(x-oms-h-\w+)`", PAGE.text)
    shared = {name: text for name, text in blocks(SHARED).items() if name not in blocks(PAGE)}
    assert all(old in text for text in shared.values())
    return {name: text.replace(old, new) for name, text in shared.items()}


async def _begin_the_log(directory: Path, url: str) -> None:
    [produce, *_] = commands(PAGE, "Verify")
    begun = await run(produce, directory, {"http://127.0.0.1:8080": url})
    assert begun.returncode == 0, begun.stderr


async def _verify(company: Company, directory: Path, address: str) -> None:
    company.write_ledger(directory / "confirmed.ndjson")
    found = commands(PAGE, "Verify")[1:]
    assert [command[2] for command in found] == ["once", "verify"]
    for command in found:
        done = await run(command, directory, {ADDRESS: address})
        assert done.returncode == 0, (done.stdout, done.stderr)


@pytest.mark.extended
@pytest.mark.usefixtures("archived_jvm")
async def test_nothing_is_lost_on_the_way_there_and_back(rabbit: RabbitMQ, tmp_path: Path) -> None:
    programs = Programs(PAGE, tmp_path / "programs", _http_programs())
    programs.compile()
    address = rabbit.url
    url = f"{address}?destinations={_entries(tmp_path)}"
    with (
        Company(tmp_path / "company") as company,
        Bridge(tmp_path / "producers", backend=url) as producing,
        Bridge(tmp_path / "consumers", backend=url) as consuming,
    ):
        [look] = commands(PAGE, "Check the queue first")
        looked = await run(look, tmp_path, {ADDRESS: address})
        assert looked.returncode == 0, (looked.stdout, looked.stderr)
        await _begin_the_log(tmp_path, producing.url)  # step 2
        native_producer = company.produce_with(programs.command("native_producer.py", address))
        native_consumer = company.consume_with(programs.command("native_consumer.py", address))
        await company.trade_until_all_work()

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
        await _verify(company, tmp_path, address)

        company.consume_with(
            programs.command("native_consumer.py", address)
        )  # back, step 3, HTTP producers as they are
        await company.trade_until_all_work()
        for consumer in consumers:
            await company.stop(consumer)
        assert consuming.terminate() == 0
        await company.trade_until_all_work()
        company.produce_with(programs.command("native_producer.py", address))  # back, step 4
        await company.trade_until_all_work()
        for producer in producers:
            await company.retire(producer)
        await company.trade_until_all_work()
        await _verify(company, tmp_path, address)
        verdict = company.verdict()
        print(f"\nRabbitMQ, there and back: {verdict}")  # noqa: T201 - the counts are the result
        assert [verdict.lost, verdict.unexpected, verdict.doubled] == [[], [], []], str(verdict)
        assert producing.terminate() == 0
        queues = rabbit.ctl("list_queues", "name", "messages").splitlines()
        assert {line for line in queues if line.startswith("billing")} == {"billing\t0"}
