"""The commands on the page about RabbitMQ, run against a real one."""

import asyncio
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from adapters.base import Adapter, MetadataStore, Outcome, Partitioned
from adapters.rabbitmq import connect
from bridge.errors import BackendUnavailable, BridgeError, Refused
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


@pytest.mark.extended
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


REFUSED: Final[dict[tuple[str, str], tuple[type[BridgeError], str]]] = {
    ("configure", r"orders(\..*)?"): (Refused, "orders."),
    ("configure", r"oms\..*"): (BackendUnavailable, "oms.book"),
    ("write", r"orders(\..*)?"): (Refused, "orders."),
    ("write", r"oms\..*"): (BackendUnavailable, "oms.bridges"),
    ("write", r"amq\.default"): (BackendUnavailable, "oms.book"),
    ("read", r"orders(\..*)?"): (Refused, "orders."),
    ("read", r"oms\..*"): (BackendUnavailable, "oms.book"),
}
"""For each permission of the page: the error without it, and what it names. BackendUnavailable ends the start."""


def test_every_permission_of_the_page_is_tried() -> None:
    assert {(kind, piece) for kind in KINDS for piece in pieces(kind)} == set(REFUSED)


@pytest.mark.extended
@pytest.mark.parametrize(("kind", "piece"), REFUSED)
async def test_each_permission_is_needed(kind: str, piece: str, rabbit: RabbitMQ) -> None:
    """Without it the work is refused, naming what is forbidden; once it is given the same adapter does the work."""
    error, name = REFUSED[kind, piece]
    others = "|".join(other for other in pieces(kind) if other != piece)
    adapter = connect(url_of(rabbit))
    try:
        await _allow(rabbit, GIVEN | {kind: f"^({others})$"})
        with pytest.raises(error) as refused:
            await _work(adapter)
        assert re.fullmatch(rf"{re.escape(name)}\S*: {_FORBIDDEN}", refused.value.detail), refused.value.detail
        await _allow(rabbit, GIVEN)
        await _work(adapter)
    finally:
        await _allow(rabbit, GIVEN)
        await adapter.close()


_FORBIDDEN: Final = r"the bridge's user has no permission for it \(RabbitMQ's permissions\)\."


async def _allow(rabbit: RabbitMQ, expressions: dict[str, str]) -> None:
    *command, _, _, _ = COMMANDS[-1]
    await asyncio.to_thread(rabbit.ctl, *command, *(expressions[kind] for kind in KINDS))


async def _work(adapter: Adapter) -> None:
    """Do everything that a permission is needed for; each time with a new destination and group."""
    destination, born = f"orders.{uuid4().hex[:8]}", now()
    message = Message(destination, message_id=uuid4().hex, born_timestamp=born, store_timestamp=born)
    assert isinstance(adapter, Partitioned)
    assert isinstance(adapter, MetadataStore)
    async with asyncio.timeout(PATIENCE):
        await adapter.start()
        await adapter.partitions(destination)
        await adapter.publish(message._replace(partition=0))
        await adapter.publish(message._replace(partition=0, message_id="late", delay_time=200))
        await adapter.put("note", "kept")
        subscription = await adapter.subscribe(destination, "billing", lambda _: ())
        try:
            for _ in range(2):
                deliveries = await subscription.fetch(1, 1_000)
                await subscription.settle(deliveries, Outcome.SETTLED)
        finally:
            await subscription.close()


@pytest.mark.extended
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
