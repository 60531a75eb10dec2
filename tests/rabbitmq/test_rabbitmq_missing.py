"""Where no RabbitMQ can be had, a test fails in CI, is skipped elsewhere, and says what to install."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import provide
from tests.brokers.provide import own_rabbitmq, rabbitmq_runtime


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the only folder of programs, empty, on a machine without Docker, a package and a given RabbitMQ."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody")
    monkeypatch.setattr(provide, "_PACKAGED", str(tmp_path / "rabbitmq-server"))
    monkeypatch.delenv("OMS_TEST_RABBITMQ", raising=False)
    rabbitmq_runtime.cache_clear()
    yield folder
    rabbitmq_runtime.cache_clear()


def test_ci_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    kind, reason = _refusal(tmp_path)
    assert kind is pytest.fail.Exception
    assert "nor an installed RabbitMQ" in reason
    assert "apt-get install rabbitmq-server" in reason


def test_it_is_skipped_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    kind, reason = _refusal(tmp_path)
    assert kind is pytest.skip.Exception
    assert "OMS_TEST_RABBITMQ=amqp://" in reason


def test_one_on_the_path_is_found(programs: Path) -> None:
    (programs / "rabbitmq-server").touch(0o755)
    assert rabbitmq_runtime().call == f"{programs}/"


def test_beside_a_given_one_a_test_that_kills_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("OMS_TEST_RABBITMQ", "amqp://127.0.0.1:5672")
    kind, reason = _refusal(tmp_path)
    assert kind is pytest.skip.Exception
    assert "unset OMS_TEST_RABBITMQ" in reason


def _refusal(directory: Path) -> tuple[type[BaseException], str]:
    """Catch both: a test that expects a failure and comes upon a skip would be skipped itself, and never seen."""
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception)) as raised:
        own_rabbitmq(directory / "rabbit")
    return raised.type, str(raised.value)
