"""The commands and the programs on the page about RabbitMQ, run against a real one."""

import asyncio
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final
from uuid import uuid4

import pika
import pytest

from adapters.base import Adapter, Notebook, Outcome, Partitioned
from adapters.rabbitmq import connect
from bridge.errors import BridgeError
from bridge.message import Message
from tests.brokers.provide import own_rabbitmq
from tests.brokers.rabbitmq import RabbitMQ
from tests.conformance.conversation import Conversation, now
from tests.docs.page import Page
from tests.docs.steps import buries, calls_back, consumes, produces, waits_for
from tests.rabbitmq.bridged import backend, bridged
from tests.trouble import PATIENCE, probe, ready, until

_PAGE: Final = Page("rabbitmq.md")
PAGE: Final = _PAGE.text
COMMANDS: Final = [
    shlex.split(line)[1:]
    for line in re.findall(r"^rabbitmqctl (?:add_vhost|add_user|set_permissions) .*$", PAGE, re.MULTILINE)
]
KINDS: Final = ("configure", "write", "read")
GIVEN: Final = dict(zip(KINDS, COMMANDS[-1][-3:], strict=True))
"""The regular expressions of the command."""


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A RabbitMQ on which the user of the page may do what the page allows."""
    with own_rabbitmq(tmp_path_factory.mktemp("brokers") / "rabbit") as rabbit:
        for command in COMMANDS:
            rabbit.ctl(*command)
        yield rabbit


def url_of(rabbit: RabbitMQ, **options: object) -> str:
    _, user, password = next(command for command in COMMANDS if command[0] == "add_user")
    told = {"prefix": "oms.", "partitions": 2} | options
    return backend(rabbit.url_of(user=user, password=password, vhost="shop"), **told)


SETTINGS: Final = {
    "OMS_DELIVERY__MAX_DELIVERIES": "1",
    "OMS_CALLBACKS__TARGETS": "http://127.0.0.1:9",
    "OMS_CALLBACKS__NETWORKS": "127.0.0.1/32",
    "OMS_CALLBACKS__SECRETS": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=",
}


async def waits(talk: Conversation) -> None:
    await waits_for(talk, 300)


async def test_the_permissions_suffice(rabbit: RabbitMQ, tmp_path: Path) -> None:
    async with bridged(tmp_path, url_of(rabbit), **SETTINGS) as (bridge, talk):
        await ready(bridge)
        for step in (produces, consumes, buries, waits, calls_back):
            talk.destination, talk.group = "orders", "billing"
            await step(talk)


def pieces(kind: str) -> list[str]:
    """Return what a regular expression of the command allows, one by one."""
    found = re.fullmatch(r"\^\((.*)\)\$", GIVEN[kind])
    assert found is not None
    return re.split(r"\|(?![^(]*\))", found[1])


@pytest.mark.parametrize(("kind", "piece"), [(kind, piece) for kind in KINDS for piece in pieces(kind)])
async def test_each_permission_is_needed(kind: str, piece: str, rabbit: RabbitMQ) -> None:
    """Without it something is refused; once it is given it goes, with the same adapter."""
    others = "|".join(other for other in pieces(kind) if other != piece)
    adapter = connect(url_of(rabbit))
    try:
        await _allow(rabbit, GIVEN | {kind: f"^({others})$"})
        with pytest.raises(BridgeError):
            await _work(adapter)
        await _allow(rabbit, GIVEN)
        await _work(adapter)
    finally:
        await _allow(rabbit, GIVEN)
        await adapter.close()


async def _allow(rabbit: RabbitMQ, expressions: dict[str, str]) -> None:
    *command, _, _, _ = COMMANDS[-1]
    await asyncio.to_thread(rabbit.ctl, *command, *(expressions[kind] for kind in KINDS))


async def _work(adapter: Adapter) -> None:
    """Do everything that a permission is needed for; a destination and a group of its own each time."""
    destination, born = f"orders.{uuid4().hex[:8]}", now()
    message = Message(destination, message_id=uuid4().hex, born_timestamp=born, store_timestamp=born)
    assert isinstance(adapter, Partitioned)
    assert isinstance(adapter, Notebook)
    async with asyncio.timeout(PATIENCE):
        await adapter.start()
        await adapter.partitions(destination)
        await adapter.publish(message._replace(partition=0))
        await adapter.publish(message._replace(partition=0, message_id="late", delay_time=200))
        await adapter.keep("note", "kept")
        subscription = await adapter.subscribe(destination, "billing", lambda _: ())
        try:
            for _ in range(2):
                deliveries = await subscription.fetch(1, 1_000)
                await subscription.settle(deliveries, Outcome.SETTLED)
        finally:
            await subscription.close()


async def test_the_queues_are_shown_as_the_page_shows_them(rabbit: RabbitMQ, tmp_path: Path) -> None:
    """One destination, one partition; five messages of which two are leased, and one that comes in an hour."""
    vhost = f"shown-{uuid4().hex[:8]}"
    rabbit.ctl("add_vhost", vhost)
    rabbit.ctl("set_permissions", "-p", vhost, "guest", ".*", ".*", ".*")
    async with bridged(tmp_path, backend(rabbit.url_of(vhost=vhost), prefix="oms.", partitions=1)) as (_, talk):
        talk.destination, talk.group = "orders", "billing"
        await talk.nothing()
        await talk.produce(b"in an hour", delaytime=3_600_000)
        for number in range(5):
            await talk.produce(b"%d" % number)
        for _ in range(2):
            await talk.take()
        for command, shown in _shown():
            told = [vhost if word == "shop" else word for word in command]

            def printed(told: list[str] = told) -> set[str]:
                return {line.rstrip() for line in rabbit.ctl(*told).splitlines()}

            await until(lambda: set(shown) <= printed(), lambda: (shown, printed()))  # noqa: B023 - awaited here
    rabbit.ctl("delete_vhost", vhost)


def _shown() -> list[tuple[list[str], list[str]]]:
    """Return the commands that the page shows with what they print: some of its lines."""
    blocks = re.findall(r"```console\n\$ rabbitmqctl -q (.*)\n((?:.*\n)*?)```", PAGE)
    assert len(blocks) == 2
    return [(shlex.split(command), [line.rstrip() for line in printed.splitlines()]) for command, printed in blocks]


async def test_every_figure_of_the_backend_is_listed_and_no_other(tmp_path: Path, rabbitmq_url: str) -> None:
    listed = set(re.findall(r"^\| `(oms_backend_\w+)` \|", PAGE, re.MULTILINE))
    async with bridged(tmp_path, backend(rabbitmq_url)) as (bridge, talk):
        await talk.produce(b"now")
        await talk.produce(b"late", delaytime=300)
        await talk.take_all(2)
        metrics = probe(bridge, "/metrics")[1]
    assert set(re.findall(r"^(oms_backend_\w+) ", metrics, re.MULTILINE)) == listed


async def test_the_programs_before_and_after_continue_each_other(tmp_path: Path, rabbitmq_url: str) -> None:
    """Step by step, as the page has it."""
    shop, queue = (f"{name}-{uuid4().hex[:8]}" for name in ("shop", "billing"))
    renamed = {'"shop"': f'"{shop}"', '"billing"': f'"{queue}"'}
    scopes: list[dict[str, Callable[..., object]]] = [{}, {}]
    blocks = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "def bill" in block]
    for block, scope in zip(blocks, scopes, strict=True):
        exec(_renamed(block, renamed), scope)  # noqa: S102 - our own page
    before, after = scopes
    (entry,) = re.findall(r"^ +(orders: \{.*\})$", PAGE, re.MULTILINE)
    file = tmp_path / "destinations.yaml"
    file.write_text(entry.replace("shop", shop).replace("billing", queue))
    came: list[tuple[str, bytes]] = []

    def handle(customer: str, body: bytes) -> None:
        came.append((customer, body))

    with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq_url))) as connection:
        channel = connection.channel()
        channel.exchange_declare(shop, "topic", durable=True)
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, shop, "order.created")
        async with bridged(tmp_path / "bridge", backend(rabbitmq_url, destinations=file)) as (bridge, _):
            await _run(after["order"](bridge.url, "c-0", b"with a property"))
            _, properties, _ = channel.basic_get(queue, auto_ack=True)
            assert properties.headers["oms_p_region"] == "eu"
            before["order"](rabbitmq_url, "c-1", b"native")
            await _run(after["order"](bridge.url, "c-2", b"bridged"))
            await asyncio.to_thread(before["bill"], rabbitmq_url, handle)
            assert came == [("c-1", b"native"), ("c-2", b"bridged")]
            before["order"](rabbitmq_url, "c-1", b"native again")
            await _run(after["order"](bridge.url, "c-2", b"bridged again"))
            await _run(after["bill"](bridge.url, handle))
            assert came[2:] == [("c-1", b"native again"), ("c-2", b"bridged again")]
            assert bridge.terminate() == 0
        before["order"](rabbitmq_url, "c-3", b"back")
        await asyncio.to_thread(before["bill"], rabbitmq_url, handle)
        assert came[4:] == [("c-3", b"back")]
        channel.queue_delete(queue)
        channel.exchange_delete(shop)


def _renamed(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text


async def _run(coroutine: object) -> None:
    assert asyncio.iscoroutine(coroutine)
    await coroutine
