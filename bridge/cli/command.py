"""How a command runs: its options, its connection to a bridge, the event loop, one sentence for an error, safe text."""
# ruff: noqa: PLC0415 - the imports: see bridge/cli/__init__.py

import asyncio
import json
import os
import select
import stat
from collections.abc import Callable, Coroutine, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

import click

from bridge.errors import BridgeError, CannotStart

if TYPE_CHECKING:
    import ssl

    from bridge.client import Client


Command = Callable[..., None]
T = TypeVar("T")


class _Text(click.ParamType[str]):
    """Text that can be sent: an argument of a shell need not be UTF-8."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text; fails if it is not UTF-8."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail("the argument is not UTF-8", param, ctx)
        return value


TEXT: Final = _Text()


def settings_options(command: Command) -> Command:
    """Add the options of everything that reads the settings."""
    command = click.option("--backend", metavar="URL", help="URL of the backend; memory:// unless set.")(command)
    return click.option("--config", type=click.Path(path_type=Path), help="YAML file with settings.")(command)


def token_option(command: Command) -> Command:
    """Add the option of everything that shows who it is."""
    return click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        envvar="OMS_TOKEN_FILE",
        show_envvar=True,
        help="File with the token for a bridge that has identities.",
    )(command)


def client_options(command: Command) -> Command:
    """Add the options of everything that talks to a running bridge; `run_with_client` takes their values."""
    pem = click.Path(exists=True, dir_okay=False)
    options = (
        click.option(
            "--url",
            default="http://127.0.0.1:8080",
            envvar="OMS_URL",
            show_default=True,
            show_envvar=True,
            help="Address of the bridge.",
        ),
        click.option("--ca", type=pem, help="PEM file with the authority to trust under https."),
        click.option("--cert", type=pem, help="PEM file with the client's certificate, if the bridge demands one."),
        click.option("--cert-key", type=pem, help="PEM file with the private key of --cert, if not in it."),
        token_option,
        click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def run_with_client(
    given: Mapping[str, Any], work: "Callable[[Client], Coroutine[Any, Any, T]]", *, as_json: bool
) -> T:
    """Connect to the bridge that the options of `client_options` name, and run the work with the connection.

    Raises `CommandFailed`, and `BadParameter` for an option that cannot be used.
    """
    from bridge.client import Client

    url, verify = given["url"], _tls_context(given["ca"], given["cert"], given["cert_key"])
    try:
        client = Client(url, verify=verify, retry_ms=given.get("retry_ms", 0), token_file=given["token_file"])
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--url") from None

    async def working() -> T:
        async with client:
            try:
                return await work(client)
            except BridgeError as error:
                if hint := _tls_hint(error, url, identified=given["cert"] is not None):
                    raise type(error)(f"{error.detail} {hint}") from error
                raise

    return run_async(working(), as_json=as_json)


def _tls_context(ca: str | None, cert: str | None, cert_key: str | None) -> "ssl.SSLContext | bool":
    """Return the context for https; True: the client's own, which trusts the public authorities."""
    if cert_key is not None and cert is None:
        raise click.UsageError("--cert-key goes with --cert.")
    if ca is None and cert is None:
        return True
    import ssl

    import certifi

    try:
        context = ssl.create_default_context(cafile=ca or certifi.where())
    except ssl.SSLError:
        raise click.BadParameter("this is not a PEM file with a certificate", param_hint="--ca") from None
    if cert is not None:
        try:
            context.load_cert_chain(cert, cert_key, _no_password)
        except OSError as error:  # ssl.SSLError is one
            message = "these are not a PEM certificate and its private key without a password"
            raise click.BadParameter(message, param_hint="--cert") from error
    return context


def _no_password() -> str:
    """Refuse an encrypted key: without this OpenSSL asks for the password on the terminal."""
    raise OSError("the key is encrypted")


def _tls_hint(error: BridgeError, url: str, *, identified: bool) -> str:
    """Return what to try if TLS may be the reason for an error; empty if not. `identified`: with a certificate.

    A server that expects TLS, or a client certificate (TLS 1.3), closes the connection without a reason.
    """
    from bridge.client.transport import ConnectionBroken

    if "CERTIFICATE_VERIFY_FAILED" in error.detail:
        return "Name the authority that signed the bridge's certificate with --ca."
    if "WRONG_VERSION_NUMBER" in error.detail:
        return "If the bridge listens without TLS, use http://."
    if not isinstance(error.__cause__, ConnectionBroken):
        return ""
    if url.startswith("http:"):
        return "If the bridge listens with TLS, use https:// and name its authority with --ca."
    return "" if identified else "If the bridge demands a client certificate, use --cert and --cert-key."


class Output:
    """Writes to a binary stream, and flushes each time."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._poll = _poll_if_writable_at_once(stream)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`, or raise.

        `click.echo` ignores a pipe that breaks in the middle under PYTHONUNBUFFERED.
        """
        rest = memoryview(data)
        while rest:
            rest = rest[self._stream.write(rest) :]
        self._stream.flush()

    async def write_soon(self, data: bytes) -> None:
        """Write all of `data`, or raise; cancellation waits for the end.

        The connection must stay alive while a pager does not read: what might block is written in a thread, which
        takes 60 us.
        """
        rest = memoryview(data)
        while rest and self._poll is not None and self._poll.poll(0):
            self.write(rest[: select.PIPE_BUF])
            rest = rest[select.PIPE_BUF :]
        if not rest:
            return
        writing = asyncio.ensure_future(asyncio.to_thread(self.write, rest))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await writing
            raise


def _poll_if_writable_at_once(stream: BinaryIO) -> "select.poll | None":
    """Return a poll for a file, or for a pipe, which takes `PIPE_BUF` bytes whenever it is ready (POSIX `write`).

    None for a terminal or a socket, which may take less.
    """
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except OSError:  # replaced by a program, as tests do
        return None
    device = stat.S_ISCHR(mode) and not stream.isatty()  # /dev/null
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or device):
        return None
    ready = select.poll()
    ready.register(stream, select.POLLOUT)
    return ready


FAILED: Final = 1
"""Exit status after an error."""
NO_MESSAGE: Final = 3
"""Exit status if there was no message."""


class CommandFailed(click.ClickException):
    """One sentence on standard error; with --json the problem document."""

    exit_code = FAILED

    def __init__(self, error: BaseException, *, as_json: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.as_json = as_json

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it."""
        click.echo(error_as_json(self.error) if self.as_json else f"Error: {self.message}", file=file, err=True)


def run_async(work: Coroutine[Any, Any, T], *, as_json: bool) -> T:
    """Run the work on an event loop. An intended error becomes one sentence; a defect stays a traceback."""
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
        # OSError: an address in use; RuntimeError: a server that is not installed; click handles a broken pipe
        intended = (SettingsError, CannotStart, BridgeError, OSError, RuntimeError)
        if isinstance(first, intended) and not isinstance(first, BrokenPipeError):
            raise CommandFailed(first, as_json=as_json) from None
        raise


def error_as_json(error: BaseException) -> str:
    """Return the error as one line of JSON."""
    from bridge.errors import problem_members

    return json.dumps(problem_members(error) if isinstance(error, BridgeError) else {"detail": str(error)})


def printable(text: str) -> str:
    """Escape what could control a terminal: the text comes from others."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
