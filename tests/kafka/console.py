"""Kafka's own console tools, called by the names that an administrator types."""

import os
import secrets
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from adapters.kafka.mapping import Record
from tests.brokers.cache import Missing
from tests.brokers.provide import advice, kafka_runtime
from tests.brokers.runtime import Run, Runtime

SECONDS: Final = 120.0
_TOOLS: Final = "org.apache.kafka.tools"
CLASSES: Final[Mapping[str, str]] = {
    "kafka-acls.sh": f"{_TOOLS}.AclCommand",
    "kafka-configs.sh": f"{_TOOLS}.ConfigCommand",
    "kafka-console-consumer.sh": f"{_TOOLS}.consumer.ConsoleConsumer",
    "kafka-console-producer.sh": f"{_TOOLS}.ConsoleProducer",
    "kafka-consumer-groups.sh": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets.sh": f"{_TOOLS}.GetOffsetShell",
    "kafka-log-dirs.sh": f"{_TOOLS}.LogDirsCommand",
    "kafka-topics.sh": f"{_TOOLS}.TopicCommand",
    "kafka-transactions.sh": f"{_TOOLS}.TransactionsCommand",
}
_SHOWN: Final = ("print.timestamp", "print.partition", "print.offset", "print.headers", "print.key")


class Console:
    """The tools on one cluster; what they read and write is in `directory`."""

    def __init__(self, runtime: Runtime, directory: Path, servers: str) -> None:
        directory.mkdir()
        self._runtime = runtime
        self._directory = directory
        self._calls = 0
        self.servers = servers

    def run(self, tool: str, *arguments: str, given: bytes = b"") -> bytes:
        """Return what the tool prints; AssertionError with what it said where it fails."""
        call = Call(self._runtime, self._new(), tool, (f"--bootstrap-server={self.servers}", *arguments), given)
        return call.result()

    def start(self, tool: str, *arguments: str) -> "Call":
        """Start a tool that goes on until it is stopped."""
        return Call(self._runtime, self._new(), tool, (f"--bootstrap-server={self.servers}", *arguments), b"")

    def produce(self, topic: str, rows: Sequence[tuple[str | None, str]], *options: str) -> None:
        """Store keys and values, by the Java client and its choice of partitions. None: no key."""
        end, nothing = _mark(), _mark()
        lines = "".join(f"{nothing if key is None else key}{end}{value}\n" for key, value in rows)
        reader = {"parse.key": "true", "key.separator": end, "null.marker": nothing}
        told = [f"--reader-property={name}={value}" for name, value in reader.items()]
        self.run("kafka-console-producer.sh", f"--topic={topic}", *told, *options, given=lines.encode())

    def consume(self, topic: str, count: int, *options: str) -> list[Record]:
        """Return the first `count` records of a topic as the Java client reads them; header values as they are."""
        field, pair, end, nothing = (_mark() for _ in range(4))
        formatter = dict.fromkeys(_SHOWN, "true") | {
            "key.separator": field,
            "headers.separator": pair,
            "line.separator": end,
            "null.literal": nothing,
        }
        told = [f"--formatter-property={name}={value}" for name, value in formatter.items()]
        bounds = ("--from-beginning", f"--max-messages={count}", "--timeout-ms=60000")
        printed = self.run("kafka-console-consumer.sh", f"--topic={topic}", *bounds, *told, *options)
        lines = printed.split(end.encode())[:-1]
        return [_record(topic, line.split(field.encode()), pair.encode(), nothing.encode()) for line in lines]

    def group(self, group: str, *options: str) -> list[dict[str, str]]:
        """Return the rows that `kafka-consumer-groups --describe` prints, by the names of their columns."""
        printed = self.run("kafka-consumer-groups.sh", "--describe", f"--group={group}", *options).decode()
        rows = [line.split() for line in printed.splitlines() if line.strip()]
        head = next(at for at, row in enumerate(rows) if row[0] == "GROUP")
        return [dict(zip(rows[head], row, strict=False)) for row in rows[head + 1 :]]

    def _new(self) -> Path:
        self._calls += 1
        return self._directory / f"call-{self._calls}"


class Call:
    """One run of a tool."""

    def __init__(self, runtime: Runtime, files: Path, tool: str, arguments: Sequence[str], given: bytes) -> None:
        self._named = f"{tool} {shlex.join(arguments)}"
        self._given = files.with_suffix(".given")
        self._printed = files.with_suffix(".printed")
        self._status = files.with_suffix(".status")
        self._said = files.with_suffix(".said")
        self._given.write_bytes(given)
        self._printed.touch()
        program = f"{runtime.call}{CLASSES[tool]} {shlex.join(arguments)}"
        streams = f"<{shlex.quote(str(self._given))} >{shlex.quote(str(self._printed))}"
        status = shlex.quote(str(self._status))
        # In the background, with a trap: a shell that waits for its program would not hear a signal.
        script = (
            f"{program} {streams} & tool=$!; trap 'kill -TERM $tool' TERM; wait $tool; wait $tool; echo $? >{status}"
        )
        self._run: Run = runtime.run(script, self._said)

    @property
    def printed(self) -> bytes:
        """What it has printed so far."""
        return self._printed.read_bytes()

    def result(self) -> bytes:
        """Wait for its end and return what it printed; AssertionError with what it said where it failed."""
        self._run.wait(SECONDS)
        said = self._said.read_text("utf-8", "replace")
        status = self._status.read_text("ascii").strip() if self._status.exists() else "none"
        assert status == "0", f"{self._named}\nstatus {status}\n{said}\n{self.printed.decode('utf-8', 'replace')}"
        return self.printed

    def stop(self) -> None:
        """End it as Ctrl-C would, and wait for that."""
        self._run.send(15)
        self._run.wait(SECONDS)


def console_of(directory: Path, servers: str) -> Console:
    """Return the tools; without Java or Docker the test fails in CI and is skipped elsewhere, with what to install."""
    try:
        return Console(kafka_runtime(), directory, servers)
    except Missing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(advice(missing))
        pytest.skip(advice(missing))


def _mark() -> str:
    """Text that stands in no message."""
    return f"<{secrets.token_hex(8)}>"


def _record(topic: str, fields: Sequence[bytes], pair: bytes, nothing: bytes) -> Record:
    stamp, partition, offset, headers, key, value = fields
    pairs = [] if headers == b"NO_HEADERS" else [each.split(b":", 1) for each in headers.split(pair)]
    return Record(
        topic,
        int(partition.removeprefix(b"Partition:")),
        int(offset.removeprefix(b"Offset:")),
        int(stamp.removeprefix(b"CreateTime:")),
        None if key == nothing else key,
        None if value == nothing else value,
        [(name.decode(), b"" if held == nothing else held) for name, held in pairs],
    )
