"""`token` makes a static token; `check --as` says which rule decides."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from bridge.cli.command import FAILED, TEXT, CommandFailed, printable

if TYPE_CHECKING:
    from bridge.settings import Settings


@click.command()
@click.option("--principal", required=True, type=TEXT, help="The principal that the token names.")
@click.option("--group", "groups", multiple=True, type=TEXT, help="A group of the principal; may be repeated.")
@click.option("--days", type=click.IntRange(1, 36_500), help="Days until the token expires; never unless set.")
def token(principal: str, groups: tuple[str, ...], days: int | None) -> None:
    """Make a static token: the token on standard output, its entry for the file `auth.tokens` on standard error.

    The file has only the hash. Nothing shows the token again.

    \b
    oms-bridge token --principal shop --group sales 2>> tokens.yaml > shop.token
    """
    from bridge.identity.principals import FileError, StaticTokens, create_token, digest_of

    text = create_token()
    entry: dict[str, object] = {"principal": principal, "hash": digest_of(text)}
    if groups:
        entry["groups"] = list(groups)
    if days is not None:
        entry["expires"] = (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")
    try:
        StaticTokens.parse({"tokens": [entry]})
    except FileError as error:
        raise click.UsageError(f"{str(error).removeprefix('token 1: ')}.") from None
    click.echo(text)
    click.echo(f"- {json.dumps(entry)}", err=True)


def decide(
    settings: "Settings", given: tuple[str, ...], *, explain: bool, groups: tuple[str, ...], as_json: bool
) -> int:
    """Print the rule that decides about principal, operation, destination and perhaps group; with `explain` all.

    Returns the exit status: 0 if it is allowed.
    """
    from bridge.identity.principals import FileError
    from bridge.identity.rules import Operation, Resource, Rules
    from bridge.identity.watched_files import WatchedFile
    from bridge.identity.yaml_content import read_yaml

    if settings.auth is None:
        raise click.UsageError("--as needs the setting auth.rules.")
    principal, operation, destination, *rest = given
    if operation not in set(Operation):
        raise click.UsageError(f"the operation is one of {', '.join(Operation)}.")
    try:
        rules = WatchedFile("auth.rules", settings.auth.rules, lambda raw: Rules.parse(read_yaml(raw))).content
    except FileError as error:
        raise CommandFailed(error, as_json=as_json) from None
    resource = Resource(None if destination == "*" else destination, rest[0] if rest else None)
    found = rules.explain(principal, groups, Operation(operation), resource)
    allowed = bool(found) and found[0].allows
    if as_json:
        click.echo(json.dumps({"allowed": allowed, "rules": [str(rule) for rule in (found if explain else found[:1])]}))
        return 0 if allowed else FAILED
    reason = str(found[0]) if found else "no rule allows it"
    click.echo(printable(f"{'allowed' if allowed else 'denied'}: {principal} {operation} on {resource}: {reason}"))
    if explain:
        for rule in found[1:]:
            click.echo(printable(f"also: {rule}"))
    for warning in rules.warnings() if explain else ():
        click.echo(printable(f"warning: {warning}"))
    return 0 if allowed else FAILED
