"""The Kafka source with TLS and logins, from the same URL as the bridge's own."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from bridge.mirror.sources import Options
from tests.brokers.kafka import Kafka
from tests.brokers.provide import own_kafka
from tests.brokers.security import Security
from tests.kafka.clients import allow, forbid, new_topic, produce
from tests.mirror.kafka_job import Job

pytestmark = pytest.mark.extended

USER = "mirror"
PASSWORD = "of-order-7"  # noqa: S105 - of a broker of our own


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    security = Security({USER: PASSWORD}, ask_certificate=True)
    with own_kafka(tmp_path_factory.mktemp("brokers") / "kafka", security=security) as started:
        yield started


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    name = new_topic(kafka.bootstrap)
    allow(kafka.bootstrap, USER, name)
    produce(kafka.bootstrap, name, b"secret")
    return name


def url(kafka: Kafka, listener: str, userinfo: str = "", **options: str) -> Options:
    given = options | {"tls": "true", "ca": str(kafka.authority)}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in given.items())
    return Options(f"kafka://{userinfo}{kafka.bootstrap_of(listener)}?{query}", "unused")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_login_over_tls(kafka: Kafka, kafka_job: Job, topic: str, tmp_path: Path, mechanism: str) -> None:
    """With permissions for the topic alone: no group is needed."""
    done = kafka_job.once(url(kafka, "SASL_SSL", f"{USER}:{PASSWORD}@", mechanism=mechanism), tmp_path)
    assert not done.error
    assert [bytes(row["body"]) for row in done.rows if row["destination"] == topic] == [b"secret"]


def test_a_certificate_is_shown(kafka: Kafka, kafka_job: Job, topic: str, tmp_path: Path) -> None:
    ours = str(kafka.authority.with_name("certificate.pem"))
    done = kafka_job.once(url(kafka, "SSL", certificate=ours, key=ours), tmp_path)
    assert not done.error
    assert [bytes(row["body"]) for row in done.rows if row["destination"] == topic] == [b"secret"]


def test_a_topic_that_may_not_be_described_is_not_gone(kafka: Kafka, kafka_job: Job, tmp_path: Path) -> None:
    """Taken for deleted, it would be mirrored again from its beginning once it may be described again."""
    topic, other = new_topic(kafka.bootstrap), new_topic(kafka.bootstrap)
    login = url(kafka, "SASL_SSL", f"{USER}:{PASSWORD}@", mechanism="PLAIN")._replace(on_data_loss="record")
    for each in (topic, other):
        allow(kafka.bootstrap, USER, each)
        produce(kafka.bootstrap, each, b"early")
    assert {row["destination"] for row in kafka_job.once(login, tmp_path).rows} >= {topic, other}
    forbid(kafka.bootstrap, topic)
    produce(kafka.bootstrap, other, b"late")
    refused = kafka_job.once(login, tmp_path)
    assert refused.said is not None, refused.error
    assert f"may no longer describe the topic {topic}" in refused.said
    allow(kafka.bootstrap, USER, topic)
    produce(kafka.bootstrap, topic, b"late")
    done = kafka_job.once(login, tmp_path)
    assert sorted((row["destination"], bytes(row["body"])) for row in done.rows) == sorted(
        [(topic, b"late"), (other, b"late")]
    )
    assert done.gaps == []


def test_a_wrong_password_is_told(kafka: Kafka, kafka_job: Job, tmp_path: Path) -> None:
    done = kafka_job.once(url(kafka, "SASL_SSL", f"{USER}:hunter2@", mechanism="PLAIN"), tmp_path)
    assert done.said is not None, done.error
    assert "authentication failed" in done.said
    assert not done.outage
    assert "hunter2" not in done.error
