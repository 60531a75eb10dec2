"""Before anything is built, a newcomer learns what the machine lacks; nothing but the standard library is needed."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers import cache, jars, packages, postgres, preflight

ROOT = Path(__file__).parents[2]
DEBIAN = {"VERSION_CODENAME": "bookworm"}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder of programs, empty, on a bare machine that is not Debian, as no particular user."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(jars, "CACHE", tmp_path / "jars")
    monkeypatch.setattr(packages, "PACKAGED", str(tmp_path / "rabbitmq-server"))
    monkeypatch.setattr(postgres, "PACKAGED", tmp_path / "postgresql")
    for module in cache, packages, preflight:
        monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    monkeypatch.setattr("platform.freedesktop_os_release", dict)
    for name in ("_GO", "_CARGO", "_SBIN"):
        monkeypatch.setattr(preflight, name, str(folder))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return folder


@pytest.mark.usefixtures("programs")
def test_a_bare_machine_lacks_every_part() -> None:
    sentences = preflight.missing(extended=True)
    assert [sentence.split()[0] for sentence in sentences] == [part.name for part in preflight.PARTS]
    for part, sentence in zip(preflight.PARTS, sentences, strict=True):
        assert part.get in sentence
        assert "\n" not in sentence
    names = [part.name for part in preflight.PARTS if not part.extended]
    assert [sentence.split()[0] for sentence in preflight.missing()] == names


def test_java_must_be_new_enough_and_kafka_needs_its_jars_as_well(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _found(programs, "java") == {"Java"}
    assert _found(programs, "java", "mvn") == {"Java", "Kafka"}
    jars.home().mkdir(parents=True)
    assert _found(programs, "java") == {"Java", "Kafka"}
    assert _found(programs) == set()
    home = _java(tmp_path, 'JAVA_VERSION="11.0.2"')
    (programs / "java").symlink_to(home / "bin" / "java")
    assert preflight.java() == 11
    assert _found(programs) == set()
    _java(tmp_path, 'JAVA_VERSION="21"')
    assert _found(programs) == {"Java", "Kafka"}
    (programs / "java").unlink()
    monkeypatch.setenv("JAVA_HOME", str(home))  # Spark uses it, the Kafka of the tests does not
    assert _found(programs) == {"Java"}


def test_rabbitmq_is_installed_or_fetched_on_debian(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _found(programs, "rabbitmq-server") == {"RabbitMQ"}
    assert _found(programs, "apt-get", "dpkg-deb") == set()
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: DEBIAN)
    assert _found(programs, "apt-get", "dpkg-deb") == {"RabbitMQ", "promtool"}
    assert _found(programs, "apt-get") == set()
    (tmp_path / "cache" / "rabbitmq-bookworm").mkdir(parents=True)
    assert _found(programs) == {"RabbitMQ"}


def test_docker_needs_its_daemon_and_images_docker_or_root_on_debian(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _found(programs, "docker") == set()
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(tmp_path / "docker.sock"))
        daemon.listen()
        assert _found(programs, "docker") == {"Kafka", "RabbitMQ", "Docker"}
    assert _found(programs, "docker") == set()
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: DEBIAN)
    assert _found(programs) == set()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert _found(programs) == {"Docker"}


def test_other_programs_are_found_by_their_names(programs: Path, tmp_path: Path) -> None:
    assert _found(programs, "helm") == {"helm"}
    assert _found(programs, "promtool") == {"promtool"}
    assert _found(programs, "node") == set()
    assert _found(programs, "node", "npm") == {"Node"}
    assert _found(programs, "cargo") == {"Rust"}
    assert _found(programs, "go") == {"helm", "Go"}
    assert _found(programs, "google-chrome") == {"Chromium"}
    assert _found(programs, "chromium") == {"Chromium"}
    assert _found(programs, "curl") == set()
    assert _found(programs, "curl", "jq") == {"curl"}
    assert _found(programs, "nginx") == set()
    assert _found(programs, "nginx", "haproxy") == {"Proxies"}
    assert _found(programs, "postgres") == {"PostgreSQL"}
    built = tmp_path / "cache" / "bin" / "helm-v3.0.0"
    built.parent.mkdir(parents=True)
    built.touch()
    assert _found(programs) == {"helm"}


def test_it_runs_with_nothing_but_the_standard_library() -> None:
    """`make test` runs it before there is an environment: `-S` leaves out every installed package."""
    command = [sys.executable, "-S", "-m", "tests.brokers.preflight"]
    bare = {"PATH": "/nowhere", "HOME": os.environ["HOME"]}
    said = subprocess.run(command, cwd=ROOT, env=bare, capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert said.stderr.startswith("Kafka is missing"), said.stderr
    table = subprocess.run([*command, "--table"], cwd=ROOT, env=bare, capture_output=True, text=True, check=True)
    assert table.stdout.count("\n") == 2 + len(preflight.PARTS)


def _found(programs: Path, *names: str) -> set[str]:
    """Return the parts that are found while there are programs of these names."""
    for name in names:
        (programs / name).touch(0o755)
    lacking = {sentence.split()[0] for sentence in preflight.missing(extended=True)}
    for name in names:
        (programs / name).unlink()
    return {part.name for part in preflight.PARTS} - lacking


def _java(folder: Path, release: str) -> Path:
    """Return the home of a Java of which the file `release` says this."""
    home = folder / "java"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    (home / "bin" / "java").touch(0o755)
    (home / "release").write_text(f"{release}\n", "utf-8")
    return home
