"""Logins that RabbitMQ does not take, a virtual host that is not there, and permissions that are missing.

Each time the bridge waits or refuses, says why, and goes on automatically once the cause is removed.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import trustme

from tests.brokers.rabbitmq import RabbitMQ
from tests.conformance.conversation import Conversation, refused
from tests.launch import Bridge
from tests.rabbitmq.bridged import backend, bridged
from tests.trouble import accepted, back_to, held, probe, ready, taken, until

pytestmark = pytest.mark.extended

PASSWORD, WRONG = "of-order-7", "of-order-8"
OWN = r"t[0-9a-f]{8}\..*|amq\.default"
"""What a bridge of these tests calls its own, and the exchange that leads to every queue."""


@pytest.fixture
def rabbit(stoppable_rabbitmq: RabbitMQ) -> RabbitMQ:
    return stoppable_rabbitmq


@pytest.fixture
def user(rabbit: RabbitMQ) -> Iterator[str]:
    """A user who may do nothing yet."""
    name = f"user-{uuid4().hex[:8]}"
    rabbit.ctl("add_user", name, PASSWORD)
    yield name
    rabbit.ctl("delete_user", name)


async def test_a_password_that_rabbitmq_does_not_take(tmp_path: Path, rabbit: RabbitMQ, user: str) -> None:
    rabbit.ctl("set_permissions", user, ".*", ".*", ".*")
    async with bridged(tmp_path, backend(rabbit.url_of(user=user, password=WRONG))) as (bridge, talk):
        await _waits(bridge, talk, "user and password")
        await asyncio.to_thread(rabbit.ctl, "change_password", user, WRONG)
        await _goes_on(bridge, talk)


async def test_a_virtual_host_that_is_not_there(tmp_path: Path, rabbit: RabbitMQ, user: str) -> None:
    """Nor is it for a user without permissions on it."""
    vhost = f"shop-{uuid4().hex[:8]}"
    async with bridged(tmp_path, backend(rabbit.url_of(user=user, password=PASSWORD, vhost=vhost))) as (bridge, talk):
        await _waits(bridge, talk, "virtual host")
        await asyncio.to_thread(rabbit.ctl, "add_vhost", vhost)
        await _waits(bridge, talk, "virtual host")
        await asyncio.to_thread(rabbit.ctl, "set_permissions", "-p", vhost, user, ".*", ".*", ".*")
        await _goes_on(bridge, talk)
    await asyncio.to_thread(rabbit.ctl, "delete_vhost", vhost)


async def test_an_authority_that_has_not_signed_the_brokers_certificate(tmp_path: Path, rabbit: RabbitMQ) -> None:
    """The file is read anew at each attempt: it can be put right under the bridge."""
    authority = tmp_path / "authority.pem"
    trustme.CA().cert_pem.write_to_path(str(authority))
    async with bridged(tmp_path / "bridge", backend(rabbit.tls_url, ca=authority)) as (bridge, talk):
        await _waits(bridge, talk, "certificate")
        authority.write_bytes(rabbit.authority.read_bytes())
        await _goes_on(bridge, talk)


async def test_no_permission_for_the_bridges_own_names(tmp_path: Path, rabbit: RabbitMQ, user: str) -> None:
    rabbit.ctl("set_permissions", user, "orders.*", "orders.*", "orders.*")
    prefix = f"t{uuid4().hex[:8]}."
    async with bridged(tmp_path, backend(rabbit.url_of(user=user, password=PASSWORD), prefix=prefix)) as (bridge, talk):
        await _waits(bridge, talk, prefix)
        await asyncio.to_thread(rabbit.ctl, "set_permissions", user, ".*", ".*", ".*")
        await _goes_on(bridge, talk)


async def test_no_permission_on_one_destination(tmp_path: Path, rabbit: RabbitMQ, user: str) -> None:
    """403 for it, whether it exists or not, whether it is produced to or consumed; the others are unharmed."""
    mine, others = f"mine-{uuid4().hex[:8]}", f"others-{uuid4().hex[:8]}"
    rights = f"^({mine}.*|{OWN})$"
    rabbit.ctl("set_permissions", user, rights, rights, rights)
    prefix = f"t{uuid4().hex[:8]}."
    async with (
        bridged(tmp_path / "owner", backend(rabbit.url, prefix=prefix)) as (_, owner),
        bridged(tmp_path / "user", backend(rabbit.url_of(user=user, password=PASSWORD), prefix=prefix)) as made,
    ):
        bridge, talk = made
        await ready(bridge)
        talk.destination = mine
        await talk.join()
        before = held(bridge)
        for made_by_owner in False, True:
            if made_by_owner:
                owner.destination = others
                await owner.produce(b"owned")
            assert others in refused(await talk.post(b"x", destination=others), 403, "backend-refused")
            assert others in refused(await talk.get(source=others), 403, "backend-refused")
            await talk.produce(b"mine")
            assert await taken(talk, meanwhile=set()) == b"mine"
        await back_to(bridge, before)
        rights = f"^(({mine}|{others}).*|{OWN})$"
        await asyncio.to_thread(rabbit.ctl, "set_permissions", user, rights, rights, rights)
        talk.destination = others
        await accepted(talk, b"may")
        assert {await taken(talk, meanwhile={403, 503}), await taken(talk, meanwhile=set())} == {b"owned", b"may"}


async def _waits(bridge: Bridge, talk: Conversation, reason: str) -> None:
    """Make sure that it is not ready, says so with the reason, keeps secrets, and has clients retry."""
    await until(lambda: reason in probe(bridge, "/readyz")[1], lambda: probe(bridge, "/readyz"))
    status, said = probe(bridge, "/readyz")
    assert status == 503
    assert not any(secret in said for secret in (PASSWORD, WRONG)), said
    assert probe(bridge, "/livez") == (200, "alive\n")
    answer = await talk.post(b"too early")
    refused(answer, 503, "backend-unavailable")
    assert answer.headers["x-oms-retry-safe"] == "true"


async def _goes_on(bridge: Bridge, talk: Conversation) -> None:
    """Make sure that it becomes ready automatically, and works."""
    await ready(bridge)
    await talk.produce(b"in time")
    assert (await talk.take()).body == b"in time"
