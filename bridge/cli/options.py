"""Shared by several commands: options for settings and for a running bridge, and the connection to that bridge."""
# ruff: noqa: PLC0415 - the imports: see bridge/cli/__init__.py

from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from bridge.cli.run_command import run_async
from bridge.errors import BridgeError

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
        client = Client(url, verify=verify, retry_ms=given.get("retry_ms", 0))
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
