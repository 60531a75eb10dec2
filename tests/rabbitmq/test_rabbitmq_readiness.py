"""A bridge without a request notices that RabbitMQ is lost, says why, and notices that it is back."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.brokers.provide import own_rabbitmq
from tests.brokers.rabbitmq import RabbitMQ
from tests.conformance.conversation import refused
from tests.rabbitmq.bridged import backend, bridged
from tests.trouble import accepted, lost, lost_and_back, readiness, ready, sentences

pytestmark = pytest.mark.extended

PASSWORD, OTHER = "of-order-7", "of-order-8"
Change = Callable[[], object]
YOUNG = 8
"""Seconds after which a stream survives a kill; see `test_rabbitmq_ledger`."""


@pytest.fixture
def rabbit(stoppable_rabbitmq: RabbitMQ) -> RabbitMQ:
    return stoppable_rabbitmq


@pytest.fixture
def user(rabbit: RabbitMQ) -> Iterator[str]:
    name = f"user-{uuid4().hex[:8]}"
    _add(rabbit, name)
    yield name
    rabbit.ctl("delete_user", name)


async def test_the_broker_is_killed(tmp_path: Path, rabbit: RabbitMQ) -> None:
    def kill() -> None:
        time.sleep(YOUNG)
        rabbit.kill()

    await _loses(tmp_path, rabbit.url, kill, "nothing listens there", rabbit.start)


async def test_the_application_of_the_broker_is_stopped(tmp_path: Path, rabbit: RabbitMQ) -> None:
    await _loses(
        tmp_path, rabbit.url, lambda: rabbit.ctl("stop_app"), "nothing listens there", lambda: rabbit.ctl("start_app")
    )


async def test_the_broker_stands_still(tmp_path: Path, rabbit: RabbitMQ) -> None:
    """Its connections stay, long before heartbeats are missed."""
    url = f"{rabbit.url}?heartbeat=60000"
    await _loses(tmp_path, url, rabbit.pause, "does not answer", rabbit.resume)


async def test_the_password_is_changed(tmp_path: Path, rabbit: RabbitMQ, user: str) -> None:
    """RabbitMQ keeps connections that have logged in before."""

    def change() -> None:
        rabbit.ctl("change_password", user, OTHER)
        rabbit.ctl("close_all_connections", "changed")

    url = rabbit.url_of(user=user, password=PASSWORD)
    reason = "does not accept this user and password"
    await _loses(tmp_path, url, change, reason, lambda: rabbit.ctl("change_password", user, PASSWORD))


async def test_the_user_is_deleted(tmp_path: Path, rabbit: RabbitMQ, user: str) -> None:
    def delete() -> None:
        rabbit.ctl("delete_user", user)
        rabbit.ctl("close_all_connections", "deleted")

    url = rabbit.url_of(user=user, password=PASSWORD)
    reason = "does not accept this user and password"
    await _loses(tmp_path, url, delete, reason, lambda: _add(rabbit, user))


async def test_a_produce_during_a_refused_login_is_answered_with_the_reason(
    tmp_path: Path, rabbit: RabbitMQ, user: str
) -> None:
    """Of a destination that is known, and of one that is new."""
    url = backend(rabbit.url_of(user=user, password=PASSWORD))
    async with bridged(tmp_path, url, OMS_TIMEOUTS__PRODUCE="2000") as (bridge, talk):
        await talk.produce(b"before")
        await asyncio.to_thread(rabbit.ctl, "change_password", user, OTHER)
        await asyncio.to_thread(rabbit.ctl, "close_all_connections", "changed")
        await lost(bridge, "does not accept this user and password")
        for destination in (talk.destination, f"new-{uuid4().hex[:8]}"):
            answer = await talk.post(b"refused", destination=destination)
            assert "does not accept this user and password" in refused(answer, 503, "backend-unavailable")
            assert answer.headers["x-oms-retry-safe"] == "true"


async def test_a_cluster_of_which_one_node_at_a_time_restarts(tmp_path: Path) -> None:
    with own_rabbitmq(tmp_path / "rabbit", nodes=3) as rabbit:
        async with bridged(tmp_path / "bridge", backend(rabbit.url)) as (bridge, talk):
            await talk.produce(b"before")
            for node in rabbit.nodes:
                await asyncio.to_thread(node.stop)
                await talk.produce(b"meanwhile")
                await asyncio.to_thread(node.start)
            await talk.produce(b"after")
            assert readiness(bridge) == (200, 1, True)
            assert not sentences(bridge, "the backend is not ready"), bridge.log


async def _loses(directory: Path, url: str, lose: Change, reason: str, restore: Change) -> None:
    """Lose and restore the broker under a bridge that has nothing to do."""
    base, _, options = url.partition("?")
    told = dict(option.split("=") for option in options.split("&") if option)
    async with bridged(directory, backend(base, **told)) as (bridge, talk):
        await ready(bridge)
        await lost_and_back(bridge, lose, reason, restore)
        await accepted(talk, b"works")
        assert PASSWORD not in bridge.log


def _add(rabbit: RabbitMQ, user: str) -> None:
    rabbit.ctl("add_user", user, PASSWORD)
    rabbit.ctl("set_permissions", user, ".*", ".*", ".*")
