"""`callback`: have the messages of a group posted to a URL, or stop that."""
# ruff: noqa: D301 - the \b keeps click from wrapping an example

import json
from typing import TYPE_CHECKING, Any, Final

import click

from bridge.cli.options import TEXT, client_options, run_with_client
from bridge.cli.run_command import printable

if TYPE_CHECKING:
    from bridge.client import Client

_FORMS: Final = ("multipart", "ndjson", "json")


@click.command()
@click.argument("source", type=TEXT)
@click.option("--group", type=TEXT, required=True, help="Consumer group whose messages are posted.")
@click.option("--to", "target", type=TEXT, help="URL to post to; the bridge's callbacks.targets must allow it.")
@click.option("--stop", is_flag=True, help="Post no more messages of the group.")
@click.option("--credit", type=click.IntRange(1, 1000), help="POSTs in flight; the bridge's default is 64.")
@click.option("--max-messages", type=click.IntRange(1, 1000), help="Post batches of up to so many messages.")
@click.option("--form", type=click.Choice(_FORMS), help="Form of a batch; multipart unless set.")
@client_options
def callback(as_json: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Have the messages of SOURCE posted to a URL.

    \b
    oms-bridge callback orders --group billing --to http://127.0.0.1:8081/orders
    oms-bridge callback orders --group billing --to http://127.0.0.1:8081/orders --max-messages 100 --form json
    oms-bridge callback orders --group billing --stop
    """
    source, group, target = given["source"], given["group"], given["target"]
    if (target is None) != given["stop"]:
        raise click.UsageError("Give either --to or --stop.")
    if given["form"] is not None and given["max_messages"] is None:
        raise click.UsageError("--form goes with --max-messages.")

    async def registering(client: "Client") -> dict[str, Any] | None:
        if target is None:
            await client.stop_callback(source, group)
            return None
        return await client.register_callback(
            source,
            group,
            target,
            credit=given["credit"],
            max_messages=given["max_messages"],
            form=given["form"] or "multipart",
        )

    registration = run_with_client(given, registering, as_json=as_json)
    if registration is None:
        click.echo("{}" if as_json else f"stopped: {printable(source)}, group {printable(group)}")
    elif as_json:
        click.echo(json.dumps(registration))
    else:
        facts = ", ".join(f"{name} {registration.get(name)}" for name in ("url", "state", "kept"))
        click.echo(printable(f"registered: {source}, group {group}, {facts}"))
