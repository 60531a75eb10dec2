"""The URL of the Kafka backend: what it allows, one sentence for the rest, and never a password in it."""

import logging
from pathlib import Path

import pytest

from adapters.kafka.options import Options, Security, parse
from adapters.kafka.produce.publisher import producer_of
from adapters.kafka.security import TokenProvider
from bridge.settings.values import redact
from tests.unit.strategies import says_whole

SECRET = "hunter2"  # noqa: S105 - what must not be seen


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "held"
    path.write_text(f"{SECRET}\n")
    return path


def test_defaults() -> None:
    assert parse("kafka://localhost:9092") == Options(("localhost:9092",))


def test_several_servers_of_every_kind() -> None:
    options = parse("kafka://a_b.example:9092,127.0.0.1:1,[::1]:65535,[2001:db8::7]:9093")
    assert options.servers == ("a_b.example:9092", "127.0.0.1:1", "[::1]:65535", "[2001:db8::7]:9093")


def test_every_option_but_security() -> None:
    url = (
        "kafka://k:9092?client=confluent&partitions=12&replication=3&create=false&compression=zstd&lanes=true&hold=0"
        "&properties=plain&strict_delay=true&instance=pod-0&session=30000&prefix=shop.oms."
    )
    assert parse(url) == Options(
        *(("k:9092",), Security(), "confluent", 12, 3, False, "zstd"),
        *("plain", True, 0, True, "pod-0", 30000, "shop.oms."),
    )


def test_tls_with_everything(file: Path) -> None:
    options = parse(f"kafka://k:9093?tls=true&ca={file}&certificate={file}&key={file}")
    assert options.security == Security(True, file, file, file)


def test_a_login_before_the_at_is_unescaped() -> None:
    security = parse("kafka://or%40ders:p%2Fa%3As%3Fs%26%25@k:9092?mechanism=PLAIN&tls=true").security
    assert (security.user, security.password) == ("or@ders", "p/a:s?s&%")


def test_a_login_as_options() -> None:
    security = parse("kafka://k:9092?tls=true&mechanism=SCRAM-SHA-512&user=u%26v&password=a+b%3Dc").security
    assert (security.mechanism, security.user, security.password) == ("SCRAM-SHA-512", "u&v", "a+b=c")


def test_a_password_from_a_file(file: Path) -> None:
    security = parse(f"kafka://u@k:9092?tls=true&mechanism=SCRAM-SHA-256&password_file={file}").security
    assert (security.user, security.password) == ("u", SECRET)


def test_a_byte_order_mark_is_no_part_of_a_secret(file: Path) -> None:
    file.write_text(f"{SECRET}\n", "utf-8-sig")
    security = parse(f"kafka://u@k:9092?tls=true&mechanism=SCRAM-SHA-256&password_file={file}").security
    assert security.password == SECRET
    security = parse(f"kafka://k:9092?tls=true&mechanism=OAUTHBEARER&token_file={file}").security
    assert TokenProvider(security).token() == SECRET


def test_a_token_from_a_file(file: Path) -> None:
    security = parse(f"kafka://k:9092?tls=true&mechanism=OAUTHBEARER&token_file={file}").security
    assert security == Security(True, mechanism="OAUTHBEARER", token_file=file)


@pytest.mark.parametrize("endpoint", ["https://idp.example/token", "http://localhost:8080/t", "http://[::1]/t"])
def test_a_token_from_an_endpoint(endpoint: str) -> None:
    url = f"kafka://id:secret@k:9092?tls=true&mechanism=OAUTHBEARER&token_url={endpoint}&scope=kafka"
    security = parse(url).security
    assert (security.user, security.password) == ("id", "secret")
    assert (security.mechanism, security.token_url, security.scope) == ("OAUTHBEARER", endpoint, "kafka")


def test_refused_with_a_sentence_that_shows_no_secret(subtests: pytest.Subtests, file: Path) -> None:
    cases: list[tuple[str, str]] = [
        ("kafka:k:9092", "kafka://host:9092"),
        ("kafka://", "server 1 is not host:port"),
        ("kafka://k", "server 1 is not host:port"),
        ("kafka://k:9092,", "server 2 is not host:port"),
        ("kafka://k:9092,,l:9092", "server 2 is not host:port"),
        ("kafka://k:0", "server 1 is not host:port"),
        ("kafka://k:65536", "server 1 is not host:port"),
        ("kafka://k:٩٠٩٢", "server 1 is not host:port"),
        ("kafka://::1:9092", "server 1 is not host:port"),
        ("kafka://k:9092/", "without a path"),
        ("kafka://k:9092?colour=red", "option 1 is unknown. The options are tls, ca"),
        ("kafka://k:9092?partition=8", "did you mean partitions?"),
        ("kafka://k:9092?tls", "option 1 is unknown; did you mean tls?"),
        ("kafka://k:9092?tls=true&tls=true", "tls is given twice"),
        ("kafka://k:9092?tls=yes", "tls: the value must be true or false"),
        ("kafka://k:9092?partitions=0", "partitions: the value must be a whole number from 1 to 10000"),
        ("kafka://k:9092?partitions=10001", "from 1 to 10000"),
        ("kafka://k:9092?partitions=%D9%A8", "plain digits"),  # ARABIC-INDIC DIGIT EIGHT
        ("kafka://k:9092?hold=" + "9" * 5000, "plain digits"),
        ("kafka://k:9092?session=999", "from 1000 to"),
        ("kafka://k:9092?compression=brotli", "one of none, gzip, snappy, lz4, zstd"),
        ("kafka://k:9092?client=java", "one of kafka-python, confluent"),
        ("kafka://k:9092?prefix=a/b", "prefix: the value must have 1 to 100 characters"),
        ("kafka://k:9092?instance=", "instance: the value must have 1 to 100 characters"),
        ("kafka://k:9092?tls=true&ca=/nowhere/ca.pem", "ca: the file cannot be read (No such file or directory)"),
        ("kafka://k:9092?tls=true&ca=/tmp", "ca: the file cannot be read (Is a directory)"),
        ("kafka://k:9092?tls=true&ca=a%00b", "ca: the file cannot be read (not a path)"),
        ("kafka://k:9092?ca=/dev/null", "need tls=true"),
        ("kafka://k:9092?tls=true&key=/dev/null", "certificate and key must be given together"),
        ("kafka://k:9092?tls=true&certificate=/dev/null", "certificate and key must be given together"),
        ("kafka://k:9092?mechanism=scram-sha-256", "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        ("kafka://k:9092?mechanism=PLAIN", "this mechanism needs a user and a password"),
        ("kafka://u@k:9092?mechanism=PLAIN", "this mechanism needs a user and a password"),
        ("kafka://u:@k:9092?mechanism=PLAIN", "password: it is empty"),
        ("kafka://u:hunter2@k:9092", "a user or password needs mechanism="),
        (
            "kafka://u:hunter2@k:9092?mechanism=PLAIN&password=hunter2",
            "password is given before the @ and as an option",
        ),
        ("kafka://u@k:9092?mechanism=PLAIN&password=hunter2&password_file=FILE", "exclude each other"),
        ("kafka://u@k:9092?mechanism=PLAIN&password_file=/dev/null", "one line of text"),
        ("kafka://k:9092?mechanism=OAUTHBEARER", "needs token_file or token_url"),
        ("kafka://k:9092?token_file=FILE", "need mechanism=OAUTHBEARER"),
        ("kafka://u:hunter2@k:9092?mechanism=OAUTHBEARER&token_file=FILE", "replaces user"),
        ("kafka://k:9092?mechanism=OAUTHBEARER&token_url=https://i/t", "the client's id and secret"),
        ("kafka://u:hunter2@k:9092?mechanism=OAUTHBEARER&token_url=http://i.example/t", "an https:// URL"),
        ("kafka://u:hunter2@k:9092?mechanism=OAUTHBEARER&token_url=https://hunter2@i/t", "without a user"),
        ("kafka://u:hunter2@k:9092?mechanism=OAUTHBEARER&token_url=https://[i/t", "an https:// URL"),
        ("kafka://u:hunter2@k:9092?mechanism=OAUTHBEARER&token_url=https://i/t&token_file=FILE", "exclude each other"),
        ("kafka://k:9092?mechanism=OAUTHBEARER&token_file=FILE&scope=a", "scope needs token_url"),
        # passwords that should have been escaped
        ("kafka://u:hun/hunter2@k:9092?mechanism=PLAIN&x", "option 2 is unknown"),
        ("kafka://u:a?hunter2@k:9092", "option 1 is unknown"),
        ("kafka://u:a%FFhunter2@k:9092?mechanism=PLAIN", "not UTF-8"),
        ("kafka://u@k:9092?mechanism=PLAIN&password=a&hunter2", "option 3 is unknown"),
        ("kafka://u@k:9092?mechanism=PLAIN&password=a&hunter2=b", "option 3 is unknown"),
        ("kafka://k:9092,hunter2", "server 2 is not host:port"),
        ("kafka://k:9092?partitions=hunter2", "plain digits"),
        ("kafka://k:9092?password=hunter2%0A&mechanism=PLAIN", "cannot be printed"),
    ]
    for url, says in cases:
        with subtests.test(url=url, says=says):
            with pytest.raises(ValueError) as caught:  # noqa: PT011 - the sentence is checked below
                parse(url.replace("FILE", str(file)))
            said = str(caught.value)
            assert says_whole(says, said)
            assert SECRET not in said
            assert said.endswith(".")
            assert len(said) < 400


def test_a_login_without_tls_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        parse(f"kafka://u:{SECRET}@k:9092?mechanism=PLAIN")
    assert "without TLS" in caplog.text
    assert SECRET not in caplog.text


def test_a_login_with_tls_is_not(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        parse(f"kafka://u:{SECRET}@k:9092?mechanism=PLAIN&tls=true")
    assert not caplog.text


def test_the_url_is_shown_without_its_secret(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        f"kafka://u:{SECRET}@k:9092,[::1]:9092?tls=true",
        f"kafka://k:9092?user=u&password={SECRET}",
        f"kafka://u:a/{SECRET}@k:9092",
        f"kafka://u:a?{SECRET}@k:9092",
        f"kafka://k:9092?password=a&{SECRET}",
    ]
    for url in cases:
        with subtests.test(url=url):
            assert SECRET not in redact(url)


def test_options_are_printed_without_their_secret() -> None:
    options = parse(f"kafka://u:{SECRET}@k:9092?mechanism=PLAIN&tls=true")
    assert "PLAIN" in repr(options)
    assert SECRET not in f"{options} {options!r} {options.security}"


def test_librdkafka_produces_where_the_options_name_it() -> None:
    options = parse("kafka://k:9092")
    assert type(producer_of(options)).__name__ == "KafkaPythonProducer"
    assert type(producer_of(options._replace(client="confluent"))).__name__ == "LibrdkafkaProducer"
