"""The RabbitMQ that tests start keeps what it confirmed, comes back where it was, and leaves nothing behind."""

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ProbableAuthenticationError

from tests.brokers.broker import logs_of_running
from tests.brokers.provide import own_rabbitmq
from tests.brokers.rabbitmq import RabbitMQ

SECONDS = 60.0
DURABLE = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    settings = {"consumer_timeout": "54321"}
    with own_rabbitmq(tmp_path_factory.mktemp("brokers") / "rabbit", settings=settings, external=True) as started:
        yield started


def test_what_is_published_is_consumed(rabbitmq_url: str) -> None:
    name = str(uuid4())
    publish(rabbitmq_url, name, b"one", b"two")
    assert consume(rabbitmq_url, name, 2) == [b"one", b"two"]
    delete(rabbitmq_url, name)


@pytest.mark.extended
@pytest.mark.parametrize("end", [RabbitMQ.stop, RabbitMQ.kill])
def test_data_and_address_outlive_the_process(rabbit: RabbitMQ, end: Callable[[RabbitMQ], None]) -> None:
    name, pid, port = str(uuid4()), rabbit.nodes[0].pid, urlsplit(rabbit.url).port
    publish(rabbit.url, name, b"before")
    rabbit.ctl("eval", "mnesia:sync_log().")  # else 3.10 may forget a queue that it declared just before the kill
    written = len(rabbit.nodes[0].log)
    end(rabbit)
    assert not runs(pid)
    assert ("SIGTERM received" in rabbit.nodes[0].log[written:]) == (end is RabbitMQ.stop)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind(("127.0.0.1", port))
    rabbit.start()
    publish(rabbit.url, name, b"after")
    assert consume(rabbit.url, name, 2) == [b"before", b"after"]


@pytest.mark.extended
def test_a_broker_that_hangs_answers_when_it_goes_on(rabbit: RabbitMQ) -> None:
    name = str(uuid4())
    publish(rabbit.url, name, b"one")
    asked, answered = threading.Event(), threading.Event()

    def ask() -> None:
        with closing(connect(rabbit.url)) as connection:
            channel = connection.channel()
            asked.set()
            assert paused.wait(SECONDS)
            assert channel.basic_get(name, auto_ack=True)[2] == b"one"
            answered.set()

    paused = threading.Event()
    asking = threading.Thread(target=ask)
    asking.start()
    assert asked.wait(SECONDS)
    rabbit.pause()
    paused.set()
    assert not answered.wait(0.5)
    rabbit.resume()
    asking.join(SECONDS)
    assert answered.is_set()


@pytest.mark.extended
def test_an_alarm_holds_publishers_up_until_it_ends(rabbit: RabbitMQ) -> None:
    heard: list[str] = []
    with closing(connect(rabbit.url)) as connection:
        connection.add_on_connection_blocked_callback(lambda *_: heard.append("blocked"))
        connection.add_on_connection_unblocked_callback(lambda *_: heard.append("unblocked"))
        rabbit.ctl("set_vm_memory_high_watermark", "0.000001")
        connection.channel().basic_publish("", "nowhere", b"")
        connection.process_data_events(SECONDS)
        assert heard == ["blocked"]
        rabbit.ctl("set_vm_memory_high_watermark", "0.4")
        connection.process_data_events(SECONDS)
        assert heard == ["blocked", "unblocked"]


@pytest.mark.extended
def test_a_user_and_a_virtual_host_of_a_tests_own(rabbit: RabbitMQ) -> None:
    user, password, vhost = "a:b/c", "p@ss word", "v/h?"
    rabbit.ctl("add_vhost", vhost)
    rabbit.ctl("add_user", user, password)
    rabbit.ctl("set_permissions", "-p", vhost, user, ".*", ".*", ".*")
    publish(rabbit.url_of(user=user, password=password, vhost=vhost), "queue", b"mine")
    assert "queue" in rabbit.ctl("list_queues", "-p", vhost, "name").split()
    with pytest.raises(ProbableAuthenticationError):
        connect(rabbit.url_of(user=user, password="another", vhost=vhost))  # noqa: S106


@pytest.mark.extended
def test_what_rabbitmqctl_says_where_it_fails(rabbit: RabbitMQ) -> None:
    with pytest.raises(AssertionError, match=r"(?i)virtual host .*nowhere.* does not exist"):
        rabbit.ctl("set_permissions", "-p", "nowhere", "guest", ".*", ".*", ".*")


@pytest.mark.extended
def test_a_certificate_is_a_login(rabbit: RabbitMQ, tmp_path: Path) -> None:
    rabbit.ctl("add_user", "bridge", "unknown")
    rabbit.ctl("set_permissions", "bridge", ".*", ".*", ".*")
    rabbit.certify(tmp_path / "bridge.pem", "bridge")
    context = ssl.create_default_context(cafile=rabbit.authority)
    context.load_cert_chain(tmp_path / "bridge.pem")
    with closing(connect(rabbit.tls_url, context, pika.credentials.ExternalCredentials())):
        assert "bridge" in rabbit.ctl("list_connections", "user").split()


@pytest.mark.extended
def test_its_settings(rabbit: RabbitMQ) -> None:
    assert rabbit.ctl("eval", "application:get_env(rabbit, consumer_timeout).").strip() == "{ok,54321}"


@pytest.mark.extended
def test_a_failure_shows_the_log_of_a_fixture(rabbit: RabbitMQ) -> None:
    rabbit.ctl("add_vhost", "shown")
    assert "Adding vhost 'shown'" in dict(logs_of_running())[f"log of RabbitMQ's node-1, {rabbit.url}"]


@pytest.mark.extended
def test_nothing_of_the_machine_is_used_and_nothing_is_left(tmp_path: Path) -> None:
    with own_rabbitmq(tmp_path / "rabbit") as rabbit:
        with closing(connect(rabbit.tls_url, ssl.create_default_context(cafile=rabbit.authority))) as connection:
            assert connection.is_open
        programs = family(rabbit.nodes[0].pid)
        # That part would start epmd, without an owner, within a minute.
        assert rabbit.ctl("eval", "whereis(rabbit_epmd_monitor).").strip() == "undefined"
        open_ = {file for each in programs for file in open_files(each)}
        assert not {file for file in open_ if not file.startswith((f"{tmp_path}/", "/dev/"))}
        listening = rabbit.ctl("eval", "[Address || Port <- erlang:ports(), {ok, Address} <- [inet:sockname(Port)]].")
        assert "{{127,0,0,1}" in listening
        assert "{{0,0,0,0" not in listening  # of either kind of address
        port = urlsplit(rabbit.url).port
    deadline = time.monotonic() + SECONDS
    while any(map(runs, programs)) and time.monotonic() < deadline:
        time.sleep(0.02)  # what a killed node has started ends when it sees that
    assert not list(filter(runs, programs))
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))
    assert not [title for title, _ in logs_of_running() if rabbit.url in title]


@pytest.mark.extended
def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    rabbit = own_rabbitmq(tmp_path / "rabbit", settings={"consumer_timeout": "soon"})
    with pytest.raises(AssertionError, match="consumer_timeout"), rabbit:
        pass
    assert not [title for title, _ in logs_of_running() if rabbit.url in title]


def connect(
    url: str, context: ssl.SSLContext | None = None, credentials: object | None = None
) -> pika.BlockingConnection:
    parameters = pika.URLParameters(url)
    if context is not None:
        parameters.ssl_options = pika.SSLOptions(context, "127.0.0.1")
    if credentials is not None:
        parameters.credentials = credentials
    return pika.BlockingConnection(parameters)


def publish(url: str, queue: str, *bodies: bytes) -> None:
    """Store messages in a queue, which is made if need be; return when all are confirmed."""
    with closing(connect(url)) as connection:
        channel: BlockingChannel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", queue, body, DURABLE, mandatory=True)


def consume(url: str, queue: str, count: int) -> list[bytes]:
    """Return the first messages of a queue, or those that have come when time is up."""
    with closing(connect(url)) as connection:
        channel: BlockingChannel = connection.channel()
        arrived: list[bytes] = []
        for _, _, body in channel.consume(queue, auto_ack=True, inactivity_timeout=SECONDS):
            if body is not None:
                arrived.append(body)
            if body is None or len(arrived) == count:
                break
        return arrived


def delete(url: str, queue: str) -> None:
    with closing(connect(url)) as connection:
        connection.channel().queue_delete(queue)


def family(pid: int) -> list[int]:
    """Return a process and all that come from it."""
    children = [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return [pid, *(each for child in children for each in family(child))]


def open_files(pid: int) -> list[str]:
    """Return the files of disks; a pipe or a socket has no path."""
    return [to for to in map(os.readlink, Path(f"/proc/{pid}/fd").iterdir()) if to.startswith("/")]


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
