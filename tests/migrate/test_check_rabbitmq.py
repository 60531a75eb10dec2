"""`oms-bridge check --migrate` on real queues: good ones, and ones made bad on purpose."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from bridge.errors import DestinationUnknown
from bridge.migrate.rabbitmq_queue_inspector import IMPOSSIBLE
from bridge.migrate.report import Verdict
from tests.brokers.provide import own_rabbitmq
from tests.brokers.rabbitmq import RabbitMQ
from tests.migrate.commands import run
from tests.migrate.reports import findings_about, report_on, seen, verdicts
from tests.rabbitmq import natives

WORKS, DIFFERS, FAILS, UNKNOWN = Verdict.WORKS, Verdict.DIFFERS, Verdict.FAILS, Verdict.UNKNOWN
HIDDEN = {"bindings", "policies", "headers", "decimal headers"}
"""What AMQP does not show."""


class Argument(NamedTuple):
    """Arguments of a queue, and what is said of them."""

    given: Mapping[str, object]
    subject: str
    verdict: Verdict
    shown: str


class Exchange(NamedTuple):
    """How an exchange is declared and entered, and what is said of it."""

    traits: Mapping[str, object]
    entry: str
    verdict: Verdict


QUORUM: Final = {"x-queue-type": "quorum"}
ARGUMENTS: Final = (
    Argument({"x-queue-type": "stream"}, "type", FAILS, "stream"),
    Argument({"x-expires": 3_600_000}, "x-expires", FAILS, "3600000"),
    Argument({"x-message-ttl": 60_000}, "x-message-ttl", DIFFERS, "60000"),
    Argument({"x-dead-letter-exchange": "dlx"}, "x-dead-letter-exchange", DIFFERS, "dlx"),
    Argument({"x-max-length": 5}, "length", DIFFERS, "x-max-length 5, x-overflow drop-head"),
    Argument(
        {"x-max-length-bytes": 500, "x-overflow": "reject-publish"},
        "length",
        DIFFERS,
        "x-max-length-bytes 500, x-overflow reject-publish",
    ),
    Argument({"x-max-priority": 9}, "x-max-priority", WORKS, "9"),
    Argument({"x-single-active-consumer": True}, "consumers", DIFFERS, "0 now, x-single-active-consumer"),
    Argument(QUORUM | {"x-delivery-limit": 3}, "x-delivery-limit", DIFFERS, "3, delivery.max_deliveries 16"),
    Argument(QUORUM | {"x-delivery-limit": 30}, "x-delivery-limit", WORKS, "30, delivery.max_deliveries 16"),
)
EXCHANGES: Final = (
    Exchange({"exchange_type": "topic"}, ", routing_key: a.b", WORKS),
    Exchange({"exchange_type": "direct"}, ", routing_key: a", WORKS),
    Exchange({"exchange_type": "fanout"}, "", WORKS),
    Exchange({"exchange_type": "topic"}, "", DIFFERS),
    Exchange({"exchange_type": "headers"}, ", routing_key: a", FAILS),
    Exchange({"exchange_type": "topic", "internal": True}, ", routing_key: a", FAILS),
    Exchange({"exchange_type": "topic", "durable": False}, ", routing_key: a", FAILS),
    Exchange({"exchange_type": "direct", "auto_delete": True}, ", routing_key: a", FAILS),
)


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """Its own: permissions are given and taken."""
    with own_rabbitmq(tmp_path_factory.mktemp("brokers") / "rabbitmq") as started:
        yield started


def queue_of(url: str, arguments: Mapping[str, object], **traits: bool) -> str:
    """Make a queue."""
    name = f"native.{uuid4().hex[:12]}"
    with natives.channel(url) as channel:
        channel.queue_declare(name, arguments=dict(arguments), **({"durable": True} | traits))
    return name


def entered(url: str, directory: Path, entry: str) -> str:
    """Return the URL with a file of destinations."""
    file = directory / "destinations.yaml"
    file.write_text(f"orders: {{{entry}}}\n", "utf-8")
    return f"{url}?destinations={file}"


async def test_nothing_is_in_the_way_of_an_ordinary_queue(
    rabbitmq_url: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for kind in ("classic", "quorum"):
        exchange = natives.exchange_of(rabbitmq_url, "topic")
        queue = natives.queue_of(rabbitmq_url, kind, exchange=exchange, key="order.created")
        natives.write(rabbitmq_url, exchange, [natives.Sent(key="order.created")])
        url = entered(rabbitmq_url, tmp_path, f"exchange: {exchange}, routing_key: order.created, queue: {queue}")
        for name in ("orders", queue):
            with subtests.test(msg=f"{kind}, by the name {name}"):
                report = await report_on(url, name, delivery={"max_deliveries": "5"})
                assert (report.kind, report.name, report.fit) == ("queue", queue, True)
                found = verdicts(report)
                assert {subject for subject, said in found.items() if said == {UNKNOWN}} == HIDDEN
                assert set().union(*found.values()) == {WORKS, UNKNOWN}
                assert seen(report, "type") == kind
                assert seen(report, "messages") == "1 ready"


@pytest.mark.extended
async def test_an_argument_that_matters_is_found_out(rabbitmq_url: str, subtests: pytest.Subtests) -> None:
    for each in ARGUMENTS:
        with subtests.test(msg=str(each.given)):
            report = await report_on(rabbitmq_url, queue_of(rabbitmq_url, each.given))
            assert verdicts(report)[each.subject] == {each.verdict}
            assert seen(report, each.subject) == each.shown
            assert report.fit is (each.verdict is not FAILS)


async def test_many_arguments_at_once_are_all_found_out(rabbitmq_url: str) -> None:
    arguments = {
        "x-max-priority": 9,
        "x-message-ttl": 60_000,
        "x-dead-letter-exchange": "dl'x",
        "x-dead-letter-routing-key": "5",
        "x-max-length": 5,
        "x-overflow": "reject-publish",
        "x-expires": 3_600_000,
        "x-queue-mode": "lazy",
        "x-single-active-consumer": True,
    }
    report = await report_on(rabbitmq_url, queue_of(rabbitmq_url, arguments))
    assert {subject for subject, said in verdicts(report).items() if said == {DIFFERS}} == {
        *("destination", "x-message-ttl", "x-dead-letter-exchange", "length", "consumers")
    }
    assert seen(report, "x-dead-letter-exchange") == "dl'x"
    assert seen(report, "x-max-priority") == "9"


@pytest.mark.extended
async def test_a_queue_that_goes_is_in_the_way(rabbitmq_url: str, subtests: pytest.Subtests) -> None:
    for traits, subject in (({"durable": False}, "durable"), ({"auto_delete": True}, "auto-delete")):
        with subtests.test(msg=subject):
            report = await report_on(rabbitmq_url, queue_of(rabbitmq_url, {}, **traits))
            assert verdicts(report)[subject] == {FAILS}
            assert [finding.subject for finding in report.findings if finding.verdict is FAILS] == [subject]


@pytest.mark.extended
async def test_a_queue_of_another_connection_is_in_the_way(rabbitmq_url: str) -> None:
    with natives.channel(rabbitmq_url) as channel:
        queue = channel.queue_declare("", exclusive=True).method.queue
        report = await report_on(rabbitmq_url, queue)
    assert verdicts(report)["exclusive"] == {FAILS}


@pytest.mark.extended
async def test_the_exchange_in_front_is_looked_at(rabbitmq_url: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for each in EXCHANGES:
        with subtests.test(msg=f"{each.traits}{each.entry}"):
            exchange = f"native.{uuid4().hex[:12]}"
            with natives.channel(rabbitmq_url) as channel:
                channel.exchange_declare(exchange, **{"durable": True, **each.traits})
            queue = queue_of(rabbitmq_url, {})
            url = entered(rabbitmq_url, tmp_path, f"exchange: {exchange}{each.entry}, queue: {queue}")
            report = await report_on(url, "orders")
            assert verdicts(report)["exchange"] == {each.verdict}
            assert seen(report, "exchange").startswith(f"{exchange}, {each.traits['exchange_type']}")


@pytest.mark.extended
async def test_an_exchange_that_is_not_there_is_in_the_way(rabbitmq_url: str, tmp_path: Path) -> None:
    url = entered(rabbitmq_url, tmp_path, f"exchange: gone-{uuid4().hex}, queue: {queue_of(rabbitmq_url, {})}")
    assert verdicts(await report_on(url, "orders"))["exchange"] == {FAILS}


def test_no_question_can_make_a_queue(rabbitmq_url: str, subtests: pytest.Subtests) -> None:
    """If the queue is deleted between two questions, the next question must not create it again."""
    with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq_url))) as connection:
        for kind, name in product(("classic", "quorum", "stream"), (*IMPOSSIBLE, "x-delivery-limit")):
            with subtests.test(msg=f"{name} of a {kind} queue"):
                asked = {name: IMPOSSIBLE[name]} if name in IMPOSSIBLE else {name: -5, "x-max-priority": -1}
                queue = f"gone-{uuid4().hex}"
                with pytest.raises(ChannelClosedByBroker):
                    connection.channel().queue_declare(queue, durable=True, arguments={"x-queue-type": kind} | asked)
                with pytest.raises(ChannelClosedByBroker, match="no queue"):
                    connection.channel().queue_declare(queue, passive=True)


@pytest.mark.extended
async def test_looking_changes_nothing(rabbit: RabbitMQ) -> None:
    queue = queue_of(rabbit.url, {"x-queue-type": "quorum", "x-message-ttl": 3_600_000})
    natives.write(rabbit.url, "", [natives.Sent(b"one", queue)])

    def state() -> list[str]:
        kinds = (("list_queues", "name", "arguments"), ("list_exchanges", "name"), ("list_bindings",))
        return [rabbit.ctl(*kind) for kind in kinds]

    before = state()
    await report_on(rabbit.url, queue)
    with pytest.raises(DestinationUnknown):
        await report_on(rabbit.url, f"{queue}-unknown")
    assert state() == before
    [got] = natives.take(rabbit.url, queue, 1)
    assert not got.redelivered


@pytest.mark.extended
async def test_a_user_who_may_not_ask_is_told_so(rabbit: RabbitMQ, tmp_path: Path) -> None:
    exchange = natives.exchange_of(rabbit.url, "topic")
    queue = queue_of(rabbit.url, {"x-expires": 3_600_000})
    rabbit.ctl("add_user", "reader", "secret")
    rabbit.ctl("set_permissions", "reader", "^$", ".*", ".*")
    url = entered(rabbit.url_of(user="reader", password="secret"), tmp_path, f"exchange: {exchange}, queue: {queue}")  # noqa: S106 - of a broker of our own
    report = await report_on(url, "orders")
    assert verdicts(report)["declaration"] == verdicts(report)["exchange"] == {UNKNOWN}
    assert report.fit


async def test_the_command_has_a_status_for_scripts(rabbitmq_url: str, tmp_path: Path) -> None:
    good, bad = queue_of(rabbitmq_url, {}), queue_of(rabbitmq_url, {"x-expires": 3_600_000})
    command = ["oms-bridge", "check", "--backend", rabbitmq_url, "--migrate"]
    shown = await run([*command, good], tmp_path, {})
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(f"queue {good}: ")
    shown = await run([*command, bad, "--json"], tmp_path, {})
    told = json.loads(shown.stdout)
    assert (shown.returncode, told["queue"], told["fit"]) == (1, bad, False)
    shown = await run([*command, f"{good}-unknown"], tmp_path, {})
    assert shown.returncode == 1
    assert shown.stderr == f"Error: {good}-unknown: there is no such queue.\n"


@pytest.mark.extended
async def test_the_name_of_an_entry_must_be_one_that_http_can_say(rabbitmq_url: str, tmp_path: Path) -> None:
    queue = queue_of(rabbitmq_url, {})
    file = tmp_path / "destinations.yaml"
    file.write_text(f"'old orders': {{queue: {queue}}}\n", "utf-8")
    report = await report_on(f"{rabbitmq_url}?destinations={file}", queue)
    assert [finding.verdict for finding in findings_about(report, "destination")] == [FAILS]
