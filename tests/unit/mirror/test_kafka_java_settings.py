"""The login and TLS of a URL, as settings of Java's client."""

from pathlib import Path

import pytest
import trustme

from adapters.kafka.options import Security
from bridge.errors import CannotStart
from bridge.mirror.sources import Options
from bridge.mirror.sources.kafka.client import java_settings
from bridge.mirror.sources.kafka.source import KafkaSource
from tests.brokers.security import Authority


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """An authority, and a certificate behind its key in one file."""
    authority, certificate = tmp_path / "authority.pem", tmp_path / "certificate.pem"
    Authority(authority).certify(certificate)
    return authority, certificate


def test_nothing_is_asked_for() -> None:
    assert java_settings(Security()) == {"security.protocol": "PLAINTEXT"}


def test_the_protocol(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bool, bool, str]] = [
        (False, True, "SASL_PLAINTEXT"),
        (True, False, "SSL"),
        (True, True, "SASL_SSL"),
    ]
    for tls, login, protocol in cases:
        with subtests.test(tls=tls, login=login, protocol=protocol):
            named = Security(mechanism="PLAIN", user="u", password="p") if login else Security()  # noqa: S106
            settings = java_settings(named._replace(tls=tls))
            assert settings["security.protocol"] == protocol


def test_the_authorities_of_this_machine_are_those_of_java() -> None:
    assert java_settings(Security(tls=True)) == {"security.protocol": "SSL"}


def test_a_password_may_hold_what_it_will() -> None:
    settings = java_settings(Security(mechanism="SCRAM-SHA-512", user="u", password='a"b\\c;d'))  # noqa: S106
    assert settings["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        r'username="u" password="a\"b\\c;d";'
    )
    assert settings["sasl.mechanism"] == "SCRAM-SHA-512"


def test_certificates_travel_as_text(files: tuple[Path, Path]) -> None:
    authority, certificate = files
    settings = java_settings(Security(tls=True, ca=authority, certificate=certificate, key=certificate))
    assert settings["ssl.truststore.certificates"].count("BEGIN CERTIFICATE") == 1
    assert "PRIVATE KEY" not in settings["ssl.keystore.certificate.chain"]
    assert settings["ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----")
    assert "CERTIFICATE" not in settings["ssl.keystore.key"]


def test_a_key_in_another_form_is_told(files: tuple[Path, Path], tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    trustme_key = trustme.CA().issue_cert("127.0.0.1")
    trustme_key.private_key_pem.write_to_path(str(key))
    chain = tmp_path / "chain.pem"
    trustme_key.cert_chain_pems[0].write_to_path(str(chain))
    with pytest.raises(CannotStart, match=r"key: .*key\.pem is not in PKCS #8"):
        java_settings(Security(tls=True, ca=files[0], certificate=chain, key=key))


def test_a_file_that_is_no_certificate_is_told(tmp_path: Path) -> None:
    none = tmp_path / "none.pem"
    none.write_text("no certificate")
    with pytest.raises(CannotStart, match=r"ca: .*none\.pem holds no certificates"):
        java_settings(Security(tls=True, ca=none))


def test_tokens_are_refused_with_a_sentence() -> None:
    with pytest.raises(CannotStart, match="OAUTHBEARER"):
        java_settings(Security(mechanism="OAUTHBEARER", token_url="https://x", user="u", password="p"))  # noqa: S106


def test_a_url_that_is_none_is_told() -> None:
    with pytest.raises(CannotStart, match="is not host:port"):
        KafkaSource(Options("kafka://nowhere", "out"))
