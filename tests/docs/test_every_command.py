"""Every command of the documents is run, by the test of its page or here, or it says which cluster it needs."""

import gzip
import importlib
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from bridge.settings import load
from tests.docs.commands import PAGES, ROOT, Command, commands
from tests.docs.shell import Shell
from tests.launch import Bridge

COMMANDS: Final = [command for page in PAGES for command in commands(page)]


class Elsewhere(NamedTuple):
    """Commands that another test runs, as they stand on the page."""

    page: str
    pattern: str
    test: str

    def has(self, command: Command) -> bool:
        return command.page == self.page and re.match(self.pattern, command.text) is not None


README_TEST: Final = "docs.test_readme.test_the_curl_conversation_prints_what_the_readme_shows"
GATEWAY: Final = "docs.test_gateway_page.test_the_recipe_works"
KAFKA_URLS: Final = "docs.test_kafka_page.test_the_examples_of_security_can_be_read"
KAFKA_PERMISSIONS: Final = "docs.test_kafka_page_runs.test_the_permissions_suffice"
KAFKA_GROUP: Final = "docs.test_kafka_page_runs.test_the_group_is_shown_as_the_page_shows_it"
KAFKA_MIGRATION: Final = "migrate.test_migrate_kafka.test_nothing_is_lost_on_the_way_there_and_back"
MIRROR_ON_S3: Final = "docs.test_mirror_page.test_the_way_to_a_bucket_can_be_walked"
MIRROR_READERS: Final = "docs.test_mirror_readers_page.test_spark_counts_the_orders"
OTHER_CLIENTS: Final = "docs.test_other_clients_page.test_a_program_produces_acknowledges_and_is_pushed_to"
RABBITMQ_URLS: Final = "docs.test_rabbitmq_page.test_the_examples_of_urls_can_be_read"
RABBITMQ_PERMISSIONS: Final = "docs.test_rabbitmq_page_runs.test_the_permissions_suffice"
RABBITMQ_QUEUES: Final = "docs.test_rabbitmq_page_runs.test_the_queues_are_shown_as_the_page_shows_them"
RABBITMQ_MIGRATION: Final = "migrate.test_migrate_rabbitmq.test_nothing_is_lost_on_the_way_there_and_back"
TLS: Final = "docs.test_tls_page.test_the_recipe_works"
_MIGRATION: Final = r"# [\w-]+\.sh\b|oms-bridge (check|mirror|produce) "
ELSEWHERE: Final = (
    Elsewhere("README.md", r"curl -si ", README_TEST),
    Elsewhere("docs/gateway.md", r"(?!kubectl)", GATEWAY),
    Elsewhere("docs/kafka.md", r"kafka://", KAFKA_URLS),
    Elsewhere("docs/kafka.md", r"kafka-acls\.sh .*--add.* User:bridge ", KAFKA_PERMISSIONS),
    Elsewhere("docs/kafka.md", r"kafka-consumer-groups\.sh ", KAFKA_GROUP),
    Elsewhere("docs/migrate-from-kafka.md", _MIGRATION, KAFKA_MIGRATION),
    Elsewhere("docs/rabbitmq.md", r"amqps://", RABBITMQ_URLS),
    Elsewhere("docs/rabbitmq.md", r"rabbitmqctl (add_vhost|add_user|set_permissions) ", RABBITMQ_PERMISSIONS),
    Elsewhere("docs/rabbitmq.md", r"rabbitmqctl -q list_", RABBITMQ_QUEUES),
    Elsewhere("docs/migrate-from-rabbitmq.md", _MIGRATION, RABBITMQ_MIGRATION),
    Elsewhere("docs/mirror.md", r"export AWS_|oms-bridge mirror \w+ --out s3a://", MIRROR_ON_S3),
    Elsewhere("docs/mirror-readers.md", r"export AWS_|spark-submit ", MIRROR_READERS),
    Elsewhere("docs/other-clients.md", r"", OTHER_CLIENTS),
    Elsewhere("docs/tls.md", r"", TLS),
)


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 50


def test_commands_that_another_test_runs_exist_and_so_does_the_test(subtests: pytest.Subtests) -> None:
    for other in ELSEWHERE:
        with subtests.test(other=other):
            module, _, test = other.test.rpartition(".")
            assert callable(getattr(importlib.import_module(f"tests.{module}"), test))
            assert any(map(other.has, COMMANDS)), "the page has no such command"


def makes(command: Command) -> bool:
    return command.text.startswith("make ")


def test_every_target_of_make_exists(subtests: pytest.Subtests) -> None:
    found = list(filter(makes, COMMANDS))
    assert len(found) > 5
    targets = set(re.findall(r"^([\w-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in found:
        with subtests.test(str(command)):
            target = next(word for word in shlex.split(command.text, comments=True)[1:] if "=" not in word)
            assert target in targets


def installs(command: Command) -> bool:
    return command.text.startswith("pip install ")


def test_pip_installs_this_distribution_with_extras_that_it_has(subtests: pytest.Subtests) -> None:
    """tests/release installs it and runs it."""
    found = list(filter(installs, COMMANDS))
    assert found
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for command in found:
        with subtests.test(str(command)):
            for wanted in shlex.split(command.text, comments=True)[2:]:
                name, extras = re.fullmatch(r"([\w-]+)(?:\[([\w,]+)\])?", wanted).groups()  # type: ignore[union-attr]
                assert name == project["name"]
                assert set(filter(None, (extras or "").split(","))) <= set(project["optional-dependencies"])


def assigns(command: Command) -> bool:
    return all(re.fullmatch(r"OMS_\w+=\S*", line) for line in command.text.splitlines())


def test_variables_are_settings(tmp_path: Path, subtests: pytest.Subtests) -> None:
    found = list(filter(assigns, COMMANDS))
    assert found
    for command in found:
        with subtests.test(str(command)):
            secret = tmp_path / "secret"
            secret.write_text("memory://")
            given = dict(line.split("=", 1) for line in command.text.splitlines())
            load(None, {}, {name: str(secret) if name.endswith("_FILE") else value for name, value in given.items()})


def is_run_here(command: Command) -> bool:
    if command.needs is not None or makes(command) or installs(command) or assigns(command):
        return False
    return not any(other.has(command) for other in ELSEWHERE)


_CALLBACKS: Final = {
    "OMS_CALLBACKS__TARGETS": "http://127.0.0.1:8081",
    "OMS_CALLBACKS__NETWORKS": "127.0.0.1/32",
    "OMS_CALLBACKS__SECRETS": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=",
}
SETTINGS: Final = {"docs/callbacks.md": _CALLBACKS, "docs/command-line.md": _CALLBACKS}
"""Variables that a page has its reader set beforehand."""


def _has_files(shell: Shell) -> None:
    """Write the files that the commands of the page read, and prepare the messages that they commit and drop."""
    (shell.directory / "bridge.yaml").write_text("log: {level: warning}\n")
    (shell.directory / "photo.jpg").write_bytes(b"\xff\xd8\xff")
    with gzip.open(shell.directory / "orders.ndjson.gz", "wb") as file:
        file.writelines(b'{"id": %d}\n' % number for number in range(300))
    headers = "-H 'x-oms-version: 1.0.0' -H 'x-oms-h-destination: prepared' -H 'x-oms-transaction: prepare'"
    for number in (7, 8):
        named = f"-H 'x-oms-h-transactionid: order-{number}' -H 'x-oms-transaction-timeout: 3600000'"
        shell.run(f"curl -s http://127.0.0.1:8080/v1/messages {headers} {named} -d one")


def _has_a_message(shell: Shell) -> None:
    """Store the message that the page asks the mirror for."""
    (identifier,) = {name for command in COMMANDS for name in re.findall(r"--message-id (\S+)", command.text)}
    headers = f"-H 'x-oms-version: 1.0.0' -H 'x-oms-h-destination: orders' -H 'x-oms-h-messageid: {identifier}'"
    shell.run(f"curl -s http://127.0.0.1:8080/v1/messages {headers} -d one")


BEFORE: Final[dict[str, Callable[[Shell], None]]] = {
    "docs/command-line.md": _has_files,
    "docs/mirror.md": _has_a_message,
}


SLOW: Final = {
    "CONTRIBUTING.md": "runs tests and a part of the conformance suite",
    "docs/command-line.md": "runs the whole conformance suite",
    "docs/mirror.md": "runs Spark",
}
"""Pages whose commands `make test` leaves to `make test-all`, and why."""
RUN_HERE: Final = [*dict.fromkeys(command.page for command in COMMANDS if is_run_here(command))]


def test_every_slow_page_has_commands() -> None:
    assert set(SLOW) - set(RUN_HERE) == set()
    assert len(RUN_HERE) > len(SLOW) + 3, "make test runs the commands of these pages"


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.extended if page in SLOW else ()) for page in RUN_HERE]
)
def test_the_commands_of_a_page_run(page: str, tmp_path: Path) -> None:
    """In their order, in one directory, with one bridge; what they print is what the page shows."""
    with Bridge(tmp_path / "bridge", settings=SETTINGS.get(page)) as bridge:
        shell = Shell(tmp_path / "shell", bridge)
        if page in BEFORE:
            BEFORE[page](shell)
        for command in COMMANDS:
            if command.page == page and is_run_here(command):
                printed = shell.run(command.text)
                if command.printed is not None:
                    assert masked(printed) == masked(command.printed), str(command)


def masked(text: str) -> list[str]:
    """The lines of what was printed; ids and times, which differ each time, as one letter."""
    return [
        re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b\d{13}\b", "…", line) for line in text.splitlines()
    ]
