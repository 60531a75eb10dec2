"""Where no Kafka can be had, a test fails in CI, is skipped elsewhere, and says what to install."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import jars
from tests.brokers.provide import kafka_runtime, own_kafka


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the only folder of programs, empty, on a machine without Docker, jars and a given Kafka."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody")
    monkeypatch.setattr(jars, "CACHE", tmp_path / "jars")
    monkeypatch.delenv("OMS_TEST_KAFKA", raising=False)
    kafka_runtime.cache_clear()
    yield folder
    kafka_runtime.cache_clear()


def test_without_java_ci_fails_and_elsewhere_it_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    kind, reason = _refusal(tmp_path)
    assert kind is pytest.fail.Exception
    assert "nor Java" in reason
    assert "apt-get install openjdk-17-jre-headless maven" in reason
    monkeypatch.delenv("CI")
    assert _refusal(tmp_path) == (pytest.skip.Exception, reason)


def test_without_maven_ci_fails(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    (programs / "java").touch(0o755)
    kind, reason = _refusal(tmp_path)
    assert kind is pytest.fail.Exception
    assert "Maven, which fetches Kafka's jars, is not installed" in reason


def test_what_maven_says_is_told(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    (programs / "java").touch(0o755)
    maven = programs / "mvn"
    maven.write_text("#!/bin/sh\necho no route to the repository\nexit 1\n", "utf-8")
    maven.chmod(0o755)
    kind, reason = _refusal(tmp_path)
    assert kind is pytest.fail.Exception
    assert "no route to the repository" in reason
    assert not jars.home().exists()


def test_a_given_kafka_does_not_replace_an_own_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not killed, and in CI no test is skipped because of it."""
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("OMS_TEST_KAFKA", "127.0.0.1:9092")
    kind, reason = _refusal(tmp_path)
    assert kind is pytest.fail.Exception
    assert "nor Java" in reason


def _refusal(directory: Path) -> tuple[type[BaseException], str]:
    """Catch both: a test that expects a failure and comes upon a skip would be skipped itself, and never seen."""
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception)) as raised:
        own_kafka(directory / "kafka")
    return raised.type, str(raised.value)
