"""`oms-bridge`: all its commands together."""
# ruff: noqa: D301 - the \b in a docstring keeps click from wrapping an example

import click

from bridge import __version__
from bridge.cli import conformance, produce, pull, push, serve
from bridge.mirror.commands import mirror

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="oms-bridge")
def main() -> None:
    """Speak OpenMessaging over HTTP/2 in front of Kafka, RabbitMQ or memory.

    \b
    oms-bridge serve                                  a bridge in memory on 127.0.0.1:8080
    oms-bridge produce orders '{"id": 7}' --key 7     put a message in
    oms-bridge pull orders --group billing            take it out
    oms-bridge push orders --group audit              watch what comes
    oms-bridge mirror once --out ./mirror             write it all into Parquet
    """


for _command in (serve.serve, serve.check, produce.produce, pull.pull, push.push, mirror, conformance.conformance):
    main.add_command(_command)
