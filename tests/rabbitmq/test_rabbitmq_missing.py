"""Where no RabbitMQ can be had, a test fails in CI, is skipped elsewhere, and says what to install or what apt said."""

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import cache, packages
from tests.brokers.provide import own_rabbitmq, rabbitmq_runtime


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the only folder of programs, empty, on a machine without Docker, a package and a given RabbitMQ."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody")
    monkeypatch.setattr(packages, "PACKAGED", str(tmp_path / "rabbitmq-server"))
    for module in cache, packages:
        monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"VERSION_CODENAME": "bookworm"})
    for name in "OMS_TEST_RABBITMQ", "OMS_TEST_RABBITMQ_RELEASE":
        monkeypatch.delenv(name, raising=False)
    rabbitmq_runtime.cache_clear()
    yield folder
    rabbitmq_runtime.cache_clear()


def test_ci_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    kind, reason = _refusal(tmp_path)
    assert kind is pytest.fail.Exception
    assert "No RabbitMQ: it is not installed" in reason
    assert "apt-get install rabbitmq-server" in reason


def test_it_is_skipped_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    kind, reason = _refusal(tmp_path)
    assert kind is pytest.skip.Exception
    assert "OMS_TEST_RABBITMQ=amqp://" in reason


def test_one_on_the_path_is_found(programs: Path) -> None:
    (programs / "rabbitmq-server").touch(0o755)
    assert rabbitmq_runtime().call == f"{programs}/"


def test_what_apt_get_says_is_told(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    _program(programs / "apt-get", "echo no route to the mirror; exit 100")
    kind, reason = _refusal(tmp_path)
    assert kind is pytest.fail.Exception
    assert "no route to the mirror" in reason
    assert "debian-archive-keyring" in reason
    assert "run the tests again" in reason
    assert not (tmp_path / "cache/rabbitmq-bookworm").exists()


def test_on_another_system_ci_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(platform, "freedesktop_os_release", dict)
    kind, reason = _refusal(tmp_path)
    assert kind is pytest.fail.Exception
    assert "not Debian" in reason


def test_another_release_comes_from_this_machines_mirror(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [
        "bookworm main http://mirror.test/debian/ /keys.gpg",
        "bookworm main http://mirror.test/debian/ /keys.gpg",
        "bookworm contrib http://mirror.test/debian/ /keys.gpg",
        "bookworm-updates main http://mirror.test/debian/ /keys.gpg",
        "bookworm main http://second.test/debian/ $(SIGNED_BY)",
        "stable main http://vendor.test/ $(SIGNED_BY)",
    ]
    # the lists, as apt-get prints them; the sources for the other release, as it gets them; then nothing more
    lines = "".join(f"echo '{line}'; " for line in known)
    where = "for option; do case $option in --option=Dir::Etc::sourcelist=*) file=${option##*=};; esac; done"
    reads = 'while read -r line; do echo "$line"; done <$file'
    _program(programs / "apt-get", f'case "$*" in *indextargets*) {lines} exit;; esac; {where}; {reads}; exit 100')
    monkeypatch.setenv("OMS_TEST_RABBITMQ_RELEASE", "trixie")
    _, reason = _refusal(tmp_path)
    assert "deb [signed-by=/keys.gpg] http://mirror.test/debian/ trixie main\n" in reason
    assert "deb http://second.test/debian/ trixie main\n" in reason
    assert reason.count("deb ") == 2


def test_a_test_may_ask_for_a_release(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine has and OMS_TEST_RABBITMQ_RELEASE names."""
    monkeypatch.setenv("OMS_TEST_RABBITMQ_RELEASE", "trixie")
    (programs / "rabbitmq-server").touch(0o755)
    for release in "bookworm", "sid":
        (tmp_path / f"cache/rabbitmq-{release}").mkdir(parents=True)
        rabbit = own_rabbitmq(tmp_path / release, release=release)
        assert f"/rabbitmq-{release}/" in rabbit._programs


def test_a_given_rabbitmq_does_not_replace_an_own_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not killed, and in CI no test is skipped because of it."""
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("OMS_TEST_RABBITMQ", "amqp://127.0.0.1:5672")
    kind, reason = _refusal(tmp_path)
    assert kind is pytest.fail.Exception
    assert "No RabbitMQ: it is not installed" in reason


def _refusal(directory: Path) -> tuple[type[BaseException], str]:
    """Catch both: a test that expects a failure and comes upon a skip would be skipped itself, and never seen."""
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception)) as raised:
        own_rabbitmq(directory / "rabbit")
    return raised.type, str(raised.value)


def _program(file: Path, script: str) -> None:
    file.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    file.chmod(0o755)
