"""`serve` and `check`: run a bridge, or look whether it would run."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli.command import FAILED, CommandFailed, printable, run_async, settings_options
from bridge.errors import BridgeError

if TYPE_CHECKING:
    from adapters.base import Features
    from bridge.migrate import Report
    from bridge.settings import Settings


@click.command()
@settings_options
@click.option("--listen", metavar="HOST:PORT", help="Data port; 127.0.0.1:8080 unless set.")
@click.option("--management", metavar="HOST:PORT", help="Probes and metrics; 127.0.0.1:9090 unless set.")
@click.option("--server", metavar="NAME", help="auto (unless set), hypercorn or granian.")
@click.option("--log-level", metavar="LEVEL", help="debug, info (unless set), warning or error.")
@click.option("--log-format", metavar="FORM", help="text or json; unset: text on a terminal, else json.")
def serve(config: Path | None, log_level: str | None, log_format: str | None, **given: str | None) -> None:
    """Run the bridge until SIGTERM or Ctrl-C, then drain. Prints one line when it is ready.

    If the backend cannot be reached, it listens all the same, prints the reason, and prints a second line when it is
    ready. It ends with exit status 1 if waiting does not help, for example if the journal is damaged.

    Every setting of docs/configuration.md can come from the file or a variable OMS_...; an option wins over a
    variable, a variable over the file. Options are visible in the list of processes: put a password into OMS_BACKEND
    or into the file that backend_file names.

    \b
    oms-bridge serve --backend 'memory://?journal=/var/lib/oms-bridge'
    OMS_LIMITS__BODY=1MiB oms-bridge serve --listen 0.0.0.0:8080 --server hypercorn
    """
    log = {name: value for name, value in (("level", log_level), ("format", log_format)) if value is not None}
    overrides = {**given, "log": log or None}

    async def serving() -> int:
        settings = _load(config, overrides)
        from bridge.process import run

        return await run(settings, click.echo)

    sys.exit(run_async(serving(), as_json=False))


@click.command()
@settings_options
@click.option("--migrate", metavar="TOPIC|QUEUE", help="Examine it instead: what will work through a bridge?")
@click.option("--through", metavar="URL", help="Send probes through the proxy at URL to a running bridge instead.")
@click.option("--destination", default="oms-check", show_default=True, help="Destination of the probes.")
@click.option("--as", "principal", metavar="PRINCIPAL", help="Say whether it may do OPERATION on DESTINATION instead.")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="With --as: a group of the principal.")
@click.option("--explain", is_flag=True, help="With --as: show all rules that concern it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("action", nargs=-1, metavar="[OPERATION DESTINATION [CONSUMER_GROUP]]")
def check(  # noqa: PLR0913, PLR0917 - options, which click passes by name
    config: Path | None,
    migrate: str | None,
    through: str | None,
    destination: str,
    principal: str | None,
    groups: tuple[str, ...],
    explain: bool,
    as_json: bool,
    action: tuple[str, ...],
    **given: str | None,
) -> None:
    """Check the settings and connect to the backend, without serving.

    --migrate declares, changes and consumes nothing. Exit status: 0 everything works, 1 something will not work or
    cannot be examined.

    --through takes a minute and says what a proxy drops, holds back or cuts. Exit status: 1 if it is anything. Two
    destinations remain, oms-check and oms-check-silent.

    --as names the rule that decides. DESTINATION `*` are all. Exit status: 0 allowed, 1 denied.

    \b
    oms-bridge check --config bridge.yaml && systemctl restart oms-bridge
    oms-bridge check --backend kafka://localhost:9092 --migrate orders
    oms-bridge check --through https://bridge.example
    oms-bridge check --config bridge.yaml --as shop consume orders billing --explain
    """
    if (principal is not None) != bool(action) or (action and len(action) not in {2, 3}):
        raise click.UsageError("--as goes with OPERATION, DESTINATION and perhaps CONSUMER_GROUP.")
    if (groups or explain) and principal is None:
        raise click.UsageError("--group and --explain go with --as.")
    if principal is not None:
        sys.exit(_decide(config, given, (principal, *action), groups, explain=explain, as_json=as_json))
    if through is not None:
        sys.exit(_probe(through, destination, as_json=as_json))
    if migrate is not None:
        sys.exit(_examine(config, given, migrate, as_json=as_json))

    async def checking() -> "tuple[Settings, Mapping[str, str], Features]":
        settings = _load(config, given)
        from bridge.parts_from_settings import check_files, create_adapter, load_tls, server_of

        server = server_of(settings, load_tls(settings))
        await check_files(settings)
        adapter = create_adapter(settings)
        try:
            await adapter.start()
        finally:
            await adapter.close()
        return settings, {"server": server.kind, "serverReason": server.reason}, adapter.features

    _show_check(*run_async(checking(), as_json=as_json), as_json=as_json)


def _examine(config: Path | None, given: Mapping[str, object], name: str, *, as_json: bool) -> int:
    """Print the report about a topic or a queue; returns the exit status."""

    async def examining() -> "Report":
        from bridge.migrate import examine

        return await examine(_load(config, given), name)

    report = run_async(examining(), as_json=as_json)
    from bridge.migrate import report as reports

    click.echo(reports.as_json(report) if as_json else printable(reports.as_text(report)))
    return 0 if report.fit else FAILED


def _decide(  # noqa: PLR0913 - options
    config: Path | None,
    given: Mapping[str, object],
    action: tuple[str, ...],
    groups: tuple[str, ...],
    *,
    explain: bool,
    as_json: bool,
) -> int:
    """Print the rule that decides; returns the exit status."""
    from bridge.cli.access import decide
    from bridge.settings import SettingsError

    try:
        settings = _load(config, given)
    except SettingsError as error:
        raise CommandFailed(error, as_json=as_json) from None
    return decide(settings, action, explain=explain, groups=groups, as_json=as_json)


def _probe(url: str, destination: str, *, as_json: bool) -> int:
    """Print what happens to probes through a proxy; returns the exit status."""
    from bridge.cli.through import ThroughProxy

    try:
        probes = ThroughProxy(url, destination)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--through") from None
    try:
        findings = probes.probe()
    except BridgeError as error:
        raise CommandFailed(error, as_json=as_json) from None
    if as_json:
        click.echo(json.dumps({"through": url, "findings": [finding._asdict() for finding in findings]}))
    else:
        for finding in findings:
            click.echo(f"{finding.probe + ':':<28}{'ok  ' if finding.ok else 'LOST'}  {printable(finding.detail)}")
    return 0 if all(finding.ok for finding in findings) else FAILED


def _load(config: Path | None, given: Mapping[str, object]) -> "Settings":
    from bridge.settings import load

    return load(config, {name: value for name, value in given.items() if value is not None}, os.environ)


def _show_check(settings: "Settings", server: Mapping[str, str], features: "Features", *, as_json: bool) -> None:
    from bridge.settings import redact

    facts = {
        "backend": redact(settings.backend),
        "listen": str(settings.listen),
        "management": str(settings.management),
        **server,
        "durable": features.durable,
        "lateGroups": features.late_groups,
        "sharedGroups": features.shared_groups,
    }
    fields = {name: support.value for name, support in features.fields.items()}
    if as_json:
        click.echo(json.dumps({**facts, "fields": fields}))
        return
    for name, value in (facts | fields).items():
        click.echo(f"{name + ':':<16} {str(value).lower() if isinstance(value, bool) else value}")
