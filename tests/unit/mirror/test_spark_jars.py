"""The jars of Delta Lake and S3 are found, or fetched once, or the error says what to do."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bridge.errors import CannotStart
from bridge.mirror.jars import VARIABLE, spark_jars


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    program(tmp_path, "java", 'for each; do case "$each" in */openmessaging-mirror.jar) echo >"$each";; esac; done')
    return tmp_path / "cache" / "openmessaging-bridge"


def maven(tmp_path: Path, script: str) -> None:
    program(tmp_path, "mvn", f'echo run >>"{tmp_path}/runs"\n{script}')


def program(tmp_path: Path, name: str, script: str) -> None:
    file = tmp_path / "bin" / name
    file.write_text(f"#!/bin/sh\nPATH={os.defpath}\n{script}\n")
    file.chmod(0o700)


@pytest.fixture(autouse=True)
def in_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("bridge.mirror.jars.IN_WHEEL", tmp_path / "java" / "0123abcd")
    return tmp_path / "java" / "0123abcd"


FETCHES = (
    'for each; do case "$each" in -DoutputDirectory=*) out="${each#*=}";; esac; done; mkdir "$out"; echo >"$out/a.jar"'
)


def test_a_folder_that_is_named_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b.jar").touch()
    (tmp_path / "a.jar").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert spark_jars() == [tmp_path / "a.jar", tmp_path / "b.jar"]


def test_a_folder_without_jars_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none"))
    with pytest.raises(CannotStart, match=f"{VARIABLE}: there are no jars in"):
        spark_jars()


def test_those_in_the_wheel_need_neither_maven_nor_a_compiler(tmp_path: Path, in_wheel: Path, cache: Path) -> None:
    in_wheel.mkdir(parents=True)
    (in_wheel / "a.jar").touch()
    (tmp_path / "bin" / "java").unlink()
    assert spark_jars() == [in_wheel / "a.jar"]
    assert not cache.exists()


def test_jars_that_are_made_of_older_files_are_not_used(tmp_path: Path, in_wheel: Path) -> None:
    (in_wheel.parent / "old").mkdir(parents=True)
    (in_wheel.parent / "old" / "a.jar").touch()
    maven(tmp_path, FETCHES)
    assert "old" not in {jar.parent.name for jar in spark_jars()}


def test_without_maven_it_is_told() -> None:
    with pytest.raises(CannotStart, match=f"is not installed.*set {VARIABLE}"):
        spark_jars()


def test_what_maven_says_is_told_and_nothing_remains(tmp_path: Path, cache: Path) -> None:
    maven(tmp_path, f"{FETCHES}; echo no route to the repository >&2; exit 1")
    with pytest.raises(CannotStart, match="no route to the repository"):
        spark_jars()
    assert not list(cache.iterdir())


def test_what_the_compiler_says_is_told_and_nothing_remains(tmp_path: Path, cache: Path) -> None:
    maven(tmp_path, FETCHES)
    program(tmp_path, "java", "echo not found: value Upload; exit 1")
    with pytest.raises(CannotStart, match="not found: value Upload"):
        spark_jars()
    assert not list(cache.iterdir())


def test_they_are_fetched_once(tmp_path: Path, cache: Path) -> None:
    maven(tmp_path, FETCHES)
    [jar, made] = spark_jars()
    assert made == jar.with_name("openmessaging-mirror.jar")
    assert spark_jars() == [jar, made]
    assert (tmp_path / "runs").read_text() == "run\n"
    assert [jar.parent] == list(cache.iterdir())


def test_two_at_once_do_not_disturb_each_other(tmp_path: Path, cache: Path) -> None:
    """Each waits until the other runs, too."""
    maven(tmp_path, f"{FETCHES}; while [ $(wc -l <{tmp_path}/runs) -lt 2 ]; do sleep 0.05; done")
    with ThreadPoolExecutor(2) as both:
        first, second = both.map(lambda _: spark_jars(), range(2))
    assert first == second
    assert [jar.name for jar in first] == ["a.jar", "openmessaging-mirror.jar"]
    assert len(list(cache.iterdir())) == 1
