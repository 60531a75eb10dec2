"""The URL of the RabbitMQ backend: what it allows, one sentence for the rest, and never a password in it."""

import logging
from pathlib import Path

import pytest

from adapters.amqp.settings import Security
from adapters.rabbitmq.options import Existing, Options, parse
from bridge.settings.values import redact
from tests.unit.strategies import says_whole

SECRET = "hunter2"  # noqa: S105 - what must not be seen


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "held"
    path.write_text(f"{SECRET}\n")
    return path


def existing(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "destinations.yaml"
    path.write_text(text)
    return path


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path, file: Path) -> None:
    file.write_text(f"{SECRET}\n", "utf-8-sig")
    destinations = existing(tmp_path, "\ufefforders: {queue: legacy.orders}")
    options = parse(f"amqp://u@localhost?password_file={file}&destinations={destinations}")
    assert options.security.password == SECRET
    assert set(options.destinations) == {"orders"}


def test_defaults() -> None:
    assert parse("amqp://localhost") == Options((("localhost", 5672),), "/", Security("guest", "guest"))


def test_the_port_of_tls() -> None:
    assert parse("amqps://localhost") == Options((("localhost", 5671),), "/", Security("guest", "guest", tls=True))


def test_several_servers_of_every_kind() -> None:
    options = parse("amqp://a_b.example,127.0.0.1:1,[::1]:65535,[2001:db8::7]/v")
    assert options.servers == (("a_b.example", 5672), ("127.0.0.1", 1), ("::1", 65535), ("2001:db8::7", 5672))


def test_virtual_hosts(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        *(("", "/"), ("/", "/"), ("/%2F", "/"), ("/%2f", "/"), ("//", "/")),
        *(("/orders", "orders"), ("/%2Forders", "/orders"), ("/a/b", "a/b"), ("/gr%C3%BC%C3%9Fe", "grüße")),
    ]
    for path, vhost in cases:
        with subtests.test(path=path, vhost=vhost):
            assert parse(f"amqp://localhost{path}?create=true").vhost == vhost


def test_every_option_but_security(tmp_path: Path) -> None:
    file = existing(tmp_path, "{}")
    url = (
        "amqp://localhost/v?partitions=12&create=false&log=false&log_bytes=1000000&prefetch=10&properties=plain"
        f"&instance=pod-0&prefix=shop.oms.&heartbeat=30000&destinations={file}"
    )
    assert parse(url) == Options(
        *((("localhost", 5672),), "v", Security(), 12, False, False, 1_000_000, 10, "plain"),
        *("pod-0", "shop.oms.", 30_000, {}),
    )


def test_tls_with_everything(file: Path) -> None:
    security = parse(f"amqps://u:p@h?ca={file}&certificate={file}&key={file}").security
    assert security == Security("u", "p", True, file, file, file)


def test_a_certificate_in_the_place_of_a_password(file: Path) -> None:
    security = parse(f"amqps://h?certificate={file}&key={file}&external=true").security
    assert security == Security(tls=True, certificate=file, key=file, external=True)


def test_a_login_before_the_at_is_unescaped() -> None:
    security = parse("amqp://or%40ders:p%2Fa%3As%3Fs%26%25%2C@localhost").security
    assert (security.user, security.password) == ("or@ders", "p/a:s?s&%,")


def test_a_login_as_options() -> None:
    security = parse("amqp://localhost?user=u%26v&password=a+b%3Dc").security
    assert (security.user, security.password) == ("u&v", "a+b=c")


def test_a_password_from_a_file(file: Path) -> None:
    security = parse(f"amqp://u@localhost?password_file={file}").security
    assert (security.user, security.password) == ("u", SECRET)


def test_destinations_that_exist_already(tmp_path: Path) -> None:
    file = existing(
        tmp_path,
        "orders: {queue: legacy.orders}\n"
        "invoices: {exchange: billing, routing_key: invoice.created}\n"
        "news: {exchange: amq.fanout, routing_key: ''}\n"
        "audit: {log: false}\n",
    )
    assert parse(f"amqp://localhost?destinations={file}").destinations == {
        "orders": Existing(queue="legacy.orders"),
        "invoices": Existing(exchange="billing", routing_key="invoice.created"),
        "news": Existing(exchange="amq.fanout", routing_key=""),
        "audit": Existing(log=False),
    }


def test_destinations_that_mean_nothing(subtests: pytest.Subtests, tmp_path: Path) -> None:
    cases: list[tuple[str, str]] = [
        (f"a: [{SECRET}", "not YAML (line 1)"),
        (f"- {SECRET}", "map names of destinations"),
        ("7: {queue: q}", "map names of destinations"),
        ("", "map names of destinations"),
        (f"orders: {SECRET}", "orders must have one or more of exchange, routing_key, queue, log"),
        ("orders: {}", "orders must have one or more of"),
        (f"orders: {{{SECRET}: x}}", "orders must have one or more of"),
        ("orders: {queue: 7}", "orders: queue must have 1 to 255 bytes"),
        ("orders: {queue: ''}", "orders: queue must have 1 to 255 bytes"),
        (f"orders: {{exchange: {'ü' * 128}}}", "orders: exchange must have 1 to 255 bytes"),
        ('orders: {exchange: "a\\nb"}', "orders: exchange must have 1 to 255 bytes"),
        ("orders: {log: 'yes'}", "orders: log must be true or false"),
        ("orders: {routing_key: k}", "orders: routing_key needs exchange"),
        ("orders: {queue: q, log: true}", "orders: an existing queue has no log"),
        ("orders.dlq: {log: false}", "orders.dlq: dead letters need the log, or an exchange with a queue of yours"),
    ]
    for text, says in cases:
        with subtests.test(text=text, says=says):
            with pytest.raises(ValueError, match="destinations") as refusal:
                parse(f"amqp://localhost?destinations={existing(tmp_path, text)}")
            assert says_whole(says, str(refusal.value))
            assert SECRET not in str(refusal.value)


def test_what_is_refused(subtests: pytest.Subtests, file: Path) -> None:
    cases: list[tuple[str, str]] = [
        ("amqp:localhost", "amqp://user:password@host:5672"),
        ("amqp://", "server 1 is not host or host:port"),
        ("amqp:///vhost", "server 1 is not host or host:port"),
        ("amqp://k,", "server 2 is not host or host:port"),
        ("amqp://k:", "server 1 is not host or host:port"),
        ("amqp://k:0", "server 1 is not host or host:port"),
        ("amqp://k:65536", "server 1 is not host or host:port"),
        ("amqp://::1", "server 1 is not host or host:port"),
        (f"amqp://u:{SECRET}/x@k", "%40 %3A %2F"),
        (f"amqp://u:{SECRET}?x@k", "option 1 is unknown"),
        (f"amqp://u:{SECRET}%ff@k", "not UTF-8"),
        (f"amqp://k/{'v' * 256}", "a virtual host is up to 255 bytes"),
        ("amqp://k/a%00b", "a virtual host is up to 255 bytes"),
        ("amqp://k?partition=3", "did you mean partitions?"),
        ("amqp://k?cacertfile=x", "The options are ca, certificate, key"),
        ("amqp://k?partitions=0", "partitions: the value must be a whole number from 1 to 1000"),
        ("amqp://k?partitions=٣", "partitions: the value must be a whole number from 1 to 1000"),
        ("amqp://k?prefetch=65536", "prefetch: the value must be a whole number from 1 to 65535"),
        ("amqp://k?heartbeat=60", "heartbeat: the value must be a whole number from 1000 to 3600000"),
        ("amqp://k?log=no", "log: the value must be true or false"),
        ("amqp://k?prefix=a/b", "prefix: the value must have 1 to 100 characters"),
        ("amqp://k?create=true&create=true", "create is given twice"),
        (f"amqp://u:{SECRET}@k?password={SECRET}", "password is given before the @ and as an option"),
        (f"amqp://u:{SECRET}@k?password_file=/dev/null", "password_file: the file must hold one line"),
        (f"amqp://u@k?password_file=/none/{SECRET}", "password_file: the file cannot be read"),
        ("amqp://k?destinations=/none", "destinations: the file cannot be read"),
        ("amqp://u@k", "a user and a password must be given together"),
        (f"amqp://k?password={SECRET}", "a user and a password must be given together"),
        ("amqp://k?ca={file}", "need amqps://"),
        ("amqp://k?key={file}", "need amqps://"),
        ("amqp://k?certificate={file}&key={file}&external=true", "need amqps://"),
        ("amqps://k?certificate={file}", "certificate and key must be given together"),
        ("amqps://k?external=true", "external=true needs"),
        (
            f"amqps://u:{SECRET}@k?certificate={{file}}&key={{file}}&external=true",
            "replaces user and password",
        ),
        (f"amqp://u:{SECRET}@k?password_file={{file}}", "exclude each other"),
    ]
    for url, says in cases:
        with subtests.test(url=url, says=says):
            with pytest.raises(ValueError, match=r"amqps?://") as refusal:
                parse(url.replace("{file}", str(file)))
            assert says_whole(says, str(refusal.value))
            assert SECRET not in str(refusal.value)


def test_options_are_printed_without_the_password() -> None:
    assert SECRET not in repr(parse(f"amqp://u:{SECRET}@localhost"))


def test_the_password_is_redacted_where_settings_are_shown() -> None:
    assert SECRET not in redact(f"amqp://u:{SECRET}@localhost/v?password={SECRET}")


def test_a_password_in_the_open_is_warned_of(subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture) -> None:
    cases: list[tuple[str, bool]] = [
        ("amqp://rabbit.example", True),
        ("amqp://localhost,rabbit.example", True),
        ("amqp://localhost,127.0.0.1,[::1]", False),
        ("amqps://rabbit.example", False),
    ]
    for url, warned in cases:
        with subtests.test(url=url, warned=warned):
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                parse(url)
            assert bool(caplog.records) == warned
