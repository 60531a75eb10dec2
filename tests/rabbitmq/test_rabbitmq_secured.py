"""TLS, passwords and certificates: allowed users are let in, and all others get one sentence that says why not."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from adapters.amqp.link import Link
from adapters.rabbitmq.options import parse
from bridge.errors import BackendUnavailable
from tests.brokers.provide import own_rabbitmq
from tests.brokers.rabbitmq import RabbitMQ
from tests.brokers.security import Authority
from tests.rabbitmq.linked import desk, linked, outcomes

pytestmark = pytest.mark.extended

USER = "bridge"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """Clients of TLS must show a certificate."""
    with own_rabbitmq(tmp_path_factory.mktemp("secured") / "rabbit", external=True) as rabbit:
        rabbit.ctl("add_user", USER, "")
        rabbit.ctl("set_permissions", USER, ".*", ".*", ".*")
        yield rabbit


@pytest.fixture
def certificate(broker: RabbitMQ, tmp_path: Path) -> Path:
    """Of the user."""
    path = tmp_path / "bridge.pem"
    broker.certify(path, USER)
    return path


def shown(certificate: Path) -> str:
    return f"certificate={certificate}&key={certificate}"


def without_password(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


async def why_not(url: str) -> str:
    link = Link(parse(url), "test")
    with pytest.raises(BackendUnavailable) as refusal:
        await link.start()
    await link.close()
    assert "guest" not in refusal.value.detail
    return refusal.value.detail


async def test_tls_with_a_password(broker: RabbitMQ, certificate: Path) -> None:
    async with desk(f"{broker.tls_url}?ca={broker.authority}&{shown(certificate)}") as to:
        queue = await to.queue()
        bodies = [b"", b"x" * 300_000, *(b"%d" % number for number in range(200))]
        assert len(set(await outcomes([to.send("", body, queue) for body in bodies]))) == 1
        assert await to.take(queue, len(bodies)) == bodies


async def test_a_certificate_in_the_place_of_a_password(broker: RabbitMQ, certificate: Path) -> None:
    url = f"{without_password(broker.tls_url)}?ca={broker.authority}&{shown(certificate)}&external=true"
    async with linked(url):
        assert USER in broker.ctl("list_connections", "user")


async def test_a_certificate_of_nobody(broker: RabbitMQ, tmp_path: Path) -> None:
    broker.certify(tmp_path / "stranger.pem", "stranger")
    url = f"{without_password(broker.tls_url)}?ca={broker.authority}&{shown(tmp_path / 'stranger.pem')}&external=true"
    assert "does not accept this user" in await why_not(url)


async def test_no_certificate(broker: RabbitMQ) -> None:
    assert "certificate= and key=" in await why_not(f"{broker.tls_url}?ca={broker.authority}")


async def test_a_certificate_of_another_authority(broker: RabbitMQ, tmp_path: Path) -> None:
    Authority(tmp_path / "other.pem").certify(tmp_path / "forged.pem", USER)
    url = f"{broker.tls_url}?ca={broker.authority}&{shown(tmp_path / 'forged.pem')}"
    assert "certificate= and key=" in await why_not(url)


async def test_a_broker_of_another_authority(broker: RabbitMQ, certificate: Path, tmp_path: Path) -> None:
    Authority(tmp_path / "other.pem")
    why = await why_not(f"{broker.tls_url}?ca={tmp_path / 'other.pem'}&{shown(certificate)}")
    assert "its certificate is not trusted" in why
    assert "ca=" in why
    why = await why_not(f"{broker.tls_url}?{shown(certificate)}")  # nor is it one of this machine's
    assert "its certificate is not trusted" in why


async def test_a_broker_of_another_name(broker: RabbitMQ, certificate: Path) -> None:
    url = broker.tls_url.replace("127.0.0.1", "127.0.0.2")
    why = await why_not(f"{url}?ca={broker.authority}&{shown(certificate)}")
    assert "nothing listens there" in why or "127.0.0.2" in why


async def test_tls_where_there_is_none_and_none_where_there_is(broker: RabbitMQ) -> None:
    plain, secured = urlsplit(broker.url), urlsplit(broker.tls_url)
    assert "does not speak TLS" in await why_not(f"{plain._replace(scheme='amqps').geturl()}?ca={broker.authority}")
    assert "amqps://" in await why_not(secured._replace(scheme="amqp").geturl())


async def test_a_file_that_is_no_certificate(broker: RabbitMQ, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    assert "a file of ca=, certificate= or key=" in await why_not(f"{broker.tls_url}?ca={tmp_path / 'empty.pem'}")
    url = f"{broker.tls_url}?ca={broker.authority}&{shown(broker.authority)}"
    assert "a file of ca=, certificate= or key=" in await why_not(url)
