"""The command line. Each command imports what it needs when it runs, so that `--help` and a failing start are quick.

Exit status: 0 done, 1 an error (one sentence on standard error), 2 a mistyped command, 3 `pull` found nothing.
"""
# ruff: noqa: PLC0415, D301 - the imports: see above; the \b in a docstring keeps click from wrapping an example

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import click

from bridge import __version__
from bridge.errors import BridgeError

if TYPE_CHECKING:
    from adapters.base import Features
    from bridge.client import Client, Delivery, Receipt
    from bridge.message import Message
    from bridge.settings import Settings

T = TypeVar("T")
Command = Callable[..., None]

FAILED: Final = 1
NOTHING: Final = 3
_LINES: Final = 500
_LINE_BYTES: Final = 1 << 20
"""A batch of `--lines` ends at either, well inside the limits of a bridge that nobody configured."""


class _Text(click.ParamType[str]):
    """Text that can travel: what a shell hands over need not be UTF-8."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, or say that it is none."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail("the argument is not UTF-8", param, ctx)
        return value


TEXT: Final = _Text()


class _Failure(click.ClickException):
    """One sentence on standard error; under --json the problem document."""

    exit_code = FAILED

    def __init__(self, error: BaseException, *, as_json: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.as_json = as_json

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it."""
        click.echo(_document(self.error) if self.as_json else f"Error: {self.message}", file=file, err=True)


def _document(error: BaseException) -> str:
    from bridge.wire.problem import members

    return json.dumps(members(error) if isinstance(error, BridgeError) else {"detail": str(error)})


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="oms-bridge")
def main() -> None:
    """Speak OpenMessaging over HTTP/2 in front of Kafka, RabbitMQ or memory.

    \b
    oms-bridge serve                                  a bridge in memory on 127.0.0.1:8080
    oms-bridge produce orders '{"id": 7}' --key 7     put a message in
    oms-bridge pull orders --group billing            take it out
    """


def _common(command: Command) -> Command:
    """Options of everything that reads the settings."""
    command = click.option("--backend", metavar="URL", help="memory:// unless set, or another adapter's.")(command)
    return click.option("--config", type=click.Path(path_type=Path), help="YAML file with settings.")(command)


def _remote(command: Command) -> Command:
    """Options of everything that talks to a running bridge."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")(command)
    pem = click.Path(exists=True, dir_okay=False)
    command = click.option("--ca", type=pem, help="PEM file with the authority to trust under https.")(command)
    return click.option("--url", default="http://127.0.0.1:8080", show_default=True, help="The bridge.")(command)


@main.command()
@_common
@click.option("--listen", metavar="HOST:PORT", help="Data port; 127.0.0.1:8080 unless set.")
@click.option("--management", metavar="HOST:PORT", help="Probes and metrics; 127.0.0.1:9090 unless set.")
@click.option("--server", metavar="NAME", help="hypercorn (unless set) or granian.")
@click.option("--log-level", metavar="LEVEL", help="debug, info (unless set), warning or error.")
def serve(config: Path | None, log_level: str | None, **given: str | None) -> None:
    """Run the bridge until SIGTERM or Ctrl-C, then drain. Prints one line when it is ready.

    Every setting of docs/configuration.md can come from the file or a variable OMS_...; an option wins over a
    variable, a variable over the file. A password belongs into OMS_BACKEND or a file that backend_file names:
    options can be read in the list of processes.

    \b
    oms-bridge serve --backend 'memory://?journal=/var/lib/oms-bridge'
    OMS_LIMITS__BODY=1MiB oms-bridge serve --listen 0.0.0.0:8080 --server granian
    """
    overrides = {**given, "log": None if log_level is None else {"level": log_level}}

    async def serving() -> int:
        settings = _load(config, overrides)
        from bridge.process import run

        return await run(settings, click.echo)

    sys.exit(_looped(serving(), as_json=False))


@main.command()
@_common
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(config: Path | None, as_json: bool, **given: str | None) -> None:
    """Check the settings and reach the backend, without serving.

    \b
    oms-bridge check --config bridge.yaml && systemctl restart oms-bridge
    """

    async def checking() -> "tuple[Settings, Features]":
        settings = _load(config, given)
        from bridge.process import open_backend

        adapter = open_backend(settings)
        try:
            await adapter.start()
        finally:
            await adapter.close()
        return settings, adapter.features

    _show_check(*_looped(checking(), as_json=as_json), as_json=as_json)


@main.command()
@click.argument("destination", type=TEXT)
@click.argument("body", required=False)
@_remote
@click.option("--key", type=TEXT, help="Messages with the same key stay in order.")
@click.option("--property", "properties", type=TEXT, multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option("--delay-ms", type=click.IntRange(0), help="Deliver no earlier than this long from now.")
@click.option("--expire-ms", type=click.IntRange(1), help="Deliver no later than this long from now.")
@click.option("--priority", type=click.IntRange(1, 10), help="Higher goes first; 5 unless set.")
@click.option("--partition", type=click.IntRange(0), help="Instead of the one that the key chooses.")
@click.option("--content-type", type=TEXT, help="Media type of the body.")
@click.option("--require", type=TEXT, multiple=True, metavar="FIELD", help="Refuse unless the field is honoured.")
@click.option("--file", type=click.File("rb"), help="Read the body from a file; - is standard input.")
@click.option("--lines", is_flag=True, help="Each line of the file is a message of its own.")
def produce(body: str | None, file: IO[bytes] | None, lines: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Put a message into DESTINATION and print where it is stored.

    With --lines messages travel in batches, each judged on its own; the first batch with a failure is the last one.

    \b
    oms-bridge produce orders '{"id": 7}' --key customer-12 --property region=eu
    oms-bridge produce reminders 'call back' --delay-ms 60000 --require delayTime
    zcat orders.ndjson.gz | oms-bridge produce orders --file - --lines
    """
    if (body is None) == (file is None):
        raise click.UsageError("Give either BODY or --file.")
    if lines and (file is None or given["require"]):
        raise click.UsageError("--lines goes with --file and without --require.")
    as_json = given["as_json"]
    message = _template(given)

    async def producing(client: "Client") -> bool:
        if lines and file is not None:
            return await _produce_lines(client, file, message, as_json=as_json)
        content = file.read() if file is not None else os.fsencode(body or "")
        _show_receipt(await client.produce(message(content), require=given["require"]), as_json=as_json)
        return True

    if not _talk(given["url"], given["ca"], producing, as_json=as_json):
        sys.exit(FAILED)


@main.command()
@click.argument("source", type=TEXT)
@click.option("--group", type=TEXT, required=True, help="The consumer group: it sees every message once.")
@_remote
@click.option("--ack/--no-ack", default=True, help="Acknowledge after printing (default), or let it come back.")
@click.option("--wait-ms", type=click.IntRange(0, 60_000), default=0, show_default=True, help="Wait for a message.")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="Most messages to pull.")
@click.option("--raw", is_flag=True, help="Print the bodies' bytes and nothing else, not even a line end.")
def pull(url: str, ca: str | None, as_json: bool, raw: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Take messages out of SOURCE and print them. Exit status 3 when there is none.

    A message is acknowledged once it is printed, so what breaks the output loses nothing. With --no-ack it
    is delivered again when its lease of 30 s ends, and that counts as a delivery.

    \b
    oms-bridge pull orders --group billing
    oms-bridge pull orders --group billing --wait-ms 10000 --count 100 --json | jq .properties
    """
    if raw and as_json:
        raise click.UsageError("Give either --raw or --json.")
    show = _show_raw if raw else _show_json if as_json else _show_text

    async def pulling(client: "Client") -> int:
        for number in range(given["count"]):
            delivery = await client.pull(given["source"], given["group"], wait_ms=given["wait_ms"])
            if delivery is None:
                return number
            show(delivery)
            if given["ack"] and delivery.receipt is not None:
                await client.ack(delivery.receipt)
        return int(given["count"])

    if not _talk(url, ca, pulling, as_json=as_json):
        sys.exit(NOTHING)


@main.command(context_settings={"allow_interspersed_args": False})
@click.argument("url")
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
def conformance(url: str, pytest_args: tuple[str, ...]) -> None:
    """Run the conformance suite against the bridge at URL. What follows URL goes to pytest.

    The suite writes to destinations and groups of its own and leaves them behind: point it at a test bridge.

    \b
    oms-bridge conformance http://127.0.0.1:8080
    oms-bridge conformance http://127.0.0.1:8080 -k delay -x
    """
    suite = find_spec("openmessaging_conformance")
    if suite is None or not suite.origin or find_spec("pytest") is None or find_spec("pytest_asyncio") is None:
        raise _Failure(ModuleNotFoundError("The suite needs pip install 'openmessaging-bridge[conformance]'."))
    import pytest

    # By its folder: under --pyargs pytest would refuse --bridge-url, for it reads the suite's conftest too late.
    # Without the configuration of whatever project stands around: it is not the suite's.
    folder = str(Path(suite.origin).parent)
    alone = ["-c", os.devnull, "--rootdir", folder, "-o", "asyncio_mode=auto", "-p", "no:cacheprovider"]
    sys.exit(pytest.main([*alone, folder, "--bridge-url", url, *pytest_args]))


def _load(config: Path | None, given: Mapping[str, object]) -> "Settings":
    from bridge.settings import load

    return load(config, {name: value for name, value in given.items() if value is not None}, os.environ)


def _looped(work: Coroutine[Any, Any, T], *, as_json: bool) -> T:
    """Run the work; what it raises on purpose becomes one sentence, a defect stays a traceback."""
    try:
        if find_spec("uvloop") is not None:
            import uvloop

            return uvloop.run(work)
        return asyncio.run(work)
    except Exception as error:
        from bridge.settings import SettingsError

        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        # OSError: an address in use; RuntimeError: a server that is not installed; a broken pipe is click's to handle
        known = (SettingsError, BridgeError, OSError, RuntimeError)
        if isinstance(first, known) and not isinstance(first, BrokenPipeError):
            raise _Failure(first, as_json=as_json) from None
        raise


def _talk(url: str, ca: str | None, work: "Callable[[Client], Coroutine[Any, Any, T]]", *, as_json: bool) -> T:
    import ssl

    from bridge.client import Client

    try:
        client = Client(url, verify=ssl.create_default_context(cafile=ca) if ca else True)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--url") from None
    except ssl.SSLError:
        raise click.BadParameter("this is not a PEM file with a certificate", param_hint="--ca") from None

    async def talking() -> T:
        async with client:
            return await work(client)

    return _looped(talking(), as_json=as_json)


def _template(given: Mapping[str, Any]) -> "Callable[[bytes], Message]":
    """Return what makes a message of a body and the options of `produce`."""
    from bridge.message import Message

    bare = Message(
        given["destination"],
        properties=_properties(given["properties"]),
        message_key=given["key"],
        delay_time=given["delay_ms"],
        priority=given["priority"],
        partition=given["partition"],
        content_type=given["content_type"],
    )
    expire_ms = given["expire_ms"]

    def message(body: bytes) -> Message:
        expire_time = None if expire_ms is None else time.time_ns() // 1_000_000 + expire_ms
        return bare._replace(body=body, expire_time=expire_time)

    return message


def _properties(given: Sequence[str]) -> dict[str, str]:
    properties: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or name in properties:
            raise click.BadParameter("each is NAME=VALUE, and each name comes once", param_hint="--property")
        properties[name] = value
    return properties


async def _produce_lines(
    client: "Client", file: IO[bytes], message: "Callable[[bytes], Message]", *, as_json: bool
) -> bool:
    """Send batch after batch; whether all of them were stored. Reads in a thread: the connection must stay alive."""
    before = 0
    while bodies := await asyncio.to_thread(_read_lines, file):
        results = await client.produce_batch([message(body) for body in bodies])
        for number, result in enumerate(results, before + 1):
            if not isinstance(result, BridgeError):
                _show_receipt(result, as_json=as_json)
            else:
                click.echo(_document(result) if as_json else f"Error: line {number}: {result}", err=True)
        if any(isinstance(result, BridgeError) for result in results):
            return False
        before += len(bodies)
    return True


def _read_lines(file: IO[bytes]) -> list[bytes]:
    """Read the lines of one batch, without their line ends; none at the end of the file."""
    bodies: list[bytes] = []
    size = 0
    while len(bodies) < _LINES and size < _LINE_BYTES and (line := file.readline()):
        bodies.append(line.removesuffix(b"\n"))
        size += len(line)
    return bodies


def _show_receipt(receipt: "Receipt", *, as_json: bool) -> None:
    facts = {
        "messageId": receipt.message_id,
        "partition": receipt.partition,
        "offset": receipt.offset,
        "storeTimestamp": receipt.store_timestamp,
        "storeHost": receipt.store_host,
        "applied": dict(receipt.applied),
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    place = "".join(f", {name} {facts[name]}" for name in ("partition", "offset") if facts[name] is not None)
    applied = "".join(f", {name} {how}" for name, how in receipt.applied.items())
    click.echo(f"stored {_printable(receipt.message_id)}{place}{applied}")


def _show_raw(delivery: "Delivery") -> None:
    click.echo(delivery.message.body, nl=False)


def _show_json(delivery: "Delivery") -> None:
    from bridge.wire.jsonform import encode

    lease = {"receipt": delivery.receipt, "leaseUntil": delivery.lease_until}
    click.echo(json.dumps(encode(delivery.message) | lease))


def _show_text(delivery: "Delivery") -> None:
    """Print the headers as they travel, a blank line, the body."""
    from bridge.wire.headers import encode

    for name, value in encode(delivery.message):
        click.echo(b"%b: %b" % (name, value))
    if delivery.receipt is not None:
        click.echo(f"x-oms-receipt: {_printable(delivery.receipt)}")
    try:
        text = _printable(delivery.message.body.decode())
    except UnicodeDecodeError:
        text = f"({len(delivery.message.body)} bytes that are not text; --raw prints them)"
    click.echo(f"\n{text}\n")


def _printable(text: str) -> str:
    """Keep a terminal safe: what others wrote may hold escape sequences."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def _show_check(settings: "Settings", features: "Features", *, as_json: bool) -> None:
    from bridge.settings import redact

    facts = {
        "backend": redact(settings.backend),
        "listen": str(settings.listen),
        "management": str(settings.management),
        "server": settings.server,
        "durable": features.durable,
        "lateGroups": features.late_groups,
    }
    fields = {name: support.value for name, support in features.fields.items()}
    if as_json:
        click.echo(json.dumps({**facts, "fields": fields}))
        return
    for name, value in (facts | fields).items():
        click.echo(f"{name + ':':<16} {str(value).lower() if isinstance(value, bool) else value}")
