"""The produce side with every login, TLS and permission: accepted or refused with the reason, nothing left behind."""

import asyncio
import base64
import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, quote

import pytest
import trustme

from adapters.base import Stored
from adapters.kafka.admin import Admin
from adapters.kafka.mapping import Outgoing
from adapters.kafka.options import parse
from adapters.kafka.produce.publisher import Publisher
from adapters.kafka.topics import Topics
from bridge.errors import BackendUnavailable, CannotStart, Refused
from tests.brokers.kafka import Kafka
from tests.brokers.provide import own_kafka
from tests.brokers.security import Security, token
from tests.conformance.endpoint_server import EndpointServer
from tests.kafka.clients import allow, new_topic
from tests.kafka.driven import topics_of
from tests.trouble import until

pytestmark = pytest.mark.extended

USER = "orders"
PASSWORD = "of-order-7"  # noqa: S105 - of a broker of our own
LOGINS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    security = Security({USER: PASSWORD}, ask_certificate=True)
    with own_kafka(tmp_path_factory.mktemp("brokers") / "kafka", security=security) as started:
        yield started


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    name = new_topic(kafka.bootstrap)
    allow(kafka.bootstrap, USER, name)
    return name


@pytest.mark.parametrize("mechanism", LOGINS)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_the_right_password_is_let_in(kafka: Kafka, topic: str, listener: str, mechanism: str) -> None:
    tls = {"tls": "true", "ca": str(kafka.authority)} if listener == "SASL_SSL" else {}
    await _publish(_url(kafka, listener, login=True, mechanism=mechanism, **tls), topic)


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
async def test_no_secret_is_logged(
    kafka: Kafka, topic: str, mechanism: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    file.write_text(token(USER))
    login = mechanism == "PLAIN"
    named = {} if login else {"token_file": str(file)}
    url = _url(kafka, "SASL_PLAINTEXT", login=login, mechanism=mechanism, **named)
    with caplog.at_level(logging.DEBUG):
        await _publish(url, topic)
        await _ask(url)
    assert "kafka.net" in caplog.text
    assert PASSWORD not in caplog.text
    assert file.read_text() not in caplog.text


@pytest.mark.parametrize("mechanism", LOGINS)
async def test_a_wrong_password_is_told(kafka: Kafka, mechanism: str) -> None:
    before = len(kafka.nodes[0].log)
    url = _url(kafka, "SASL_PLAINTEXT", mechanism=mechanism, user=USER, password="hunter2")  # noqa: S106
    said = await _refusal(url)
    assert "authentication failed" in said
    assert "hunter2" not in said
    # more than one attempt each time, and a user may be locked out
    assert kafka.nodes[0].log[before:].count("Failed authentication") == 1


async def test_a_mechanism_that_is_not_offered_is_told(kafka: Kafka) -> None:
    """Here: none at all."""
    assert "accepts no login" in await _refusal(_url(kafka, "PLAINTEXT", login=True, mechanism="PLAIN"))


async def test_a_login_that_is_asked_for_is_told(kafka: Kafka) -> None:
    assert "mechanism=" in await _refusal(_url(kafka, "SASL_PLAINTEXT"))


async def test_tls_that_is_asked_for_is_told(kafka: Kafka) -> None:
    assert "tls=true" in await _refusal(_url(kafka, "SSL"))


async def test_tls_where_there_is_none_is_told(kafka: Kafka) -> None:
    assert "TLS handshake failed" in await _refusal(_url(kafka, "PLAINTEXT", tls="true"))


async def test_another_authority_is_told(kafka: Kafka, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    url = _url(kafka, "SASL_SSL", login=True, mechanism="PLAIN", tls="true", ca=str(other))
    assert "does not trust its certificate" in await _refusal(url)


async def test_the_authorities_of_this_machine_are_not_enough(kafka: Kafka) -> None:
    url = _url(kafka, "SASL_SSL", login=True, mechanism="PLAIN", tls="true")
    assert "does not trust its certificate" in await _refusal(url)


async def test_a_file_that_is_no_certificate_is_told_at_once(kafka: Kafka, tmp_path: Path) -> None:
    none = tmp_path / "none.pem"
    none.write_text("no certificate")
    with pytest.raises(CannotStart, match=r"ca: .*none\.pem holds no certificates"):
        await Publisher(parse(_url(kafka, "SSL", tls="true", ca=str(none)))).start()


async def test_a_certificate_is_shown(kafka: Kafka, topic: str) -> None:
    ours = str(kafka.authority.with_name("certificate.pem"))
    await _publish(_url(kafka, "SSL", tls="true", ca=str(kafka.authority), certificate=ours, key=ours), topic)


async def test_a_certificate_that_is_asked_for_is_told(kafka: Kafka) -> None:
    assert "certificate" in await _refusal(_url(kafka, "SSL", tls="true", ca=str(kafka.authority)))


async def test_a_token_is_read_anew_for_each_connection(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token(USER, -60))
    url = _url(kafka, "SASL_SSL", mechanism="OAUTHBEARER", tls="true", ca=str(kafka.authority), token_file=str(file))
    assert "authentication failed" in await _refusal(url)
    file.write_text(token(USER) + "\n")
    await _publish(url, topic)


async def test_a_token_is_fetched_with_the_secret(kafka: Kafka, topic: str) -> None:
    with _endpoint() as (endpoint, asked):
        url = _url(
            kafka, "SASL_PLAINTEXT", login=True, mechanism="OAUTHBEARER", token_url=endpoint, scope="kafka:write"
        )
        await _publish(url, topic)
    # One token serves every connection that the producer and the admin make, each of them.
    assert asked
    assert len(asked) <= 2
    assert all(form == {"grant_type": ["client_credentials"], "scope": ["kafka:write"]} for form, _ in asked)
    assert {login for _, login in asked} == {f"Basic {_basic(USER, PASSWORD)}"}


async def test_an_endpoint_that_refuses_is_told(kafka: Kafka) -> None:
    with _endpoint() as (endpoint, _):
        url = _url(
            kafka,
            "SASL_PLAINTEXT",
            mechanism="OAUTHBEARER",
            user=USER,
            password="hunter2",  # noqa: S106
            token_url=endpoint,
        )
        said = await _refusal(url)
    assert "no token" in said
    assert "401" in said
    assert "hunter2" not in said


async def test_a_topic_without_a_permission_is_refused_and_the_others_go_on(kafka: Kafka, topic: str) -> None:
    closed = new_topic(kafka.bootstrap)
    async with _running(_url(kafka, "SASL_PLAINTEXT", login=True, mechanism="PLAIN")) as (publisher, topics):
        with pytest.raises(Refused, match="no permission"):
            await topics.partitions(closed)
        results = await asyncio.gather(
            *(publisher.send(_record(each)) for each in [topic, closed] * 50), return_exceptions=True
        )
        assert all(isinstance(result, Stored) for result in results[::2])
        assert all(isinstance(result, Refused) for result in results[1::2])
        assert isinstance(await publisher.send(_record(topic)), Stored)


async def test_a_topic_that_may_not_be_created_is_refused(kafka: Kafka) -> None:
    async with _running(_url(kafka, "SASL_PLAINTEXT", login=True, mechanism="PLAIN")) as (_, topics):
        with pytest.raises(Refused, match="no permission"):
            await topics.partitions("not-to-be-created")


async def test_a_permission_that_is_given_later_is_enough(kafka: Kafka, tmp_path: Path) -> None:
    """Also the first one of all: without any, the broker does not even give a producer id."""
    user, name = "nobody", new_topic(kafka.bootstrap)
    file = tmp_path / "token"
    file.write_text(token(user))
    url = _url(kafka, "SASL_PLAINTEXT", mechanism="OAUTHBEARER", token_file=str(file))
    async with _running(url) as (publisher, _):
        with pytest.raises(Refused):
            await publisher.send(_record(name))
        allow(kafka.bootstrap, user, name)
        await _stored_at_last(publisher, name)


async def _stored_at_last(publisher: Publisher, topic: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await publisher.send(_record(topic))
            except Refused:
                await asyncio.sleep(0.1)
            else:
                return


async def _ask(url: str) -> None:
    admin = Admin(parse(url))
    await topics_of(admin, "nothing")
    await admin.close()


async def _publish(url: str, topic: str) -> None:
    async with _running(url) as (publisher, topics):
        assert await topics.partitions(topic) == 1
        assert isinstance(await publisher.send(_record(topic)), Stored)


async def _refusal(url: str) -> str:
    """Return what is said when the bridge cannot connect; nothing of the attempt remains."""
    before = _held()
    with pytest.raises(BackendUnavailable) as caught:
        await Publisher(parse(url)).start()
    await until(lambda: all(now <= then for now, then in zip(_held(), before, strict=True)), _held)
    assert caught.value.retry_safe
    return caught.value.detail


def _held() -> tuple[int, int]:
    """How many threads and open files this process has."""
    return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))


@asynccontextmanager
async def _running(url: str) -> AsyncIterator[tuple[Publisher, Topics]]:
    options = parse(url)
    publisher, admin = Publisher(options), Admin(options)
    await publisher.start()
    topics = Topics(options, admin, publisher)
    try:
        yield publisher, topics
    finally:
        await topics.close()
        await publisher.close()
        await admin.close()


def _record(topic: str) -> Outgoing:
    return Outgoing(topic, 0, 1_700_000_000_000, None, b"body", [])


def _url(kafka: Kafka, listener: str, *, login: bool = False, **options: str) -> str:
    userinfo = f"{USER}:{PASSWORD}@" if login else ""
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in options.items())
    return f"kafka://{userinfo}{kafka.bootstrap_of(listener)}?{query}"


@contextmanager
def _endpoint() -> Iterator[tuple[str, list[tuple[dict[str, list[str]], str]]]]:
    """Serve tokens to the right secret; yield the URL, and what it was asked: forms and logins."""
    asked: list[tuple[dict[str, list[str]], str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
            asked.append((form, self.headers["authorization"]))
            known = self.headers["authorization"] == f"Basic {_basic(USER, PASSWORD)}"
            answer = {"access_token": token(USER), "expires_in": 600} if known else {"error": "invalid_client"}
            body = json.dumps(answer).encode()
            self.send_response(200 if known else 401)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Not into the test's output."""

    with EndpointServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token", asked
        server.shutdown()
        thread.join()


def _basic(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()
