"""`oms-bridge`: the group of all commands."""
# ruff: noqa: D301 - the \b in a docstring keeps click from wrapping an example

import click

from bridge import __version__
from bridge.cli import callback, conformance, consume, produce, remove, serve, transaction
from bridge.mirror.commands import mirror

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="oms-bridge")
def main() -> None:
    """Speak OpenMessaging over HTTP/2 in front of Kafka, RabbitMQ or memory.

    \b
    oms-bridge serve                                  a bridge in memory on 127.0.0.1:8080
    oms-bridge produce orders '{"id": 7}' --key 7     produce a message
    oms-bridge pull orders --group billing            pull it
    oms-bridge push orders --group audit              print messages as they arrive
    oms-bridge mirror once --out ./mirror             write all messages as Parquet
    """


for _command in (
    serve.serve,
    serve.check,
    produce.produce,
    consume.pull,
    consume.push,
    callback.callback,
    transaction.transaction,
    remove.delete,
    remove.purge,
    mirror,
    conformance.conformance,
):
    main.add_command(_command)
