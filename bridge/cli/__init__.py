"""The command line. Each command imports what it needs when it runs, so that `--help` and a failing start are quick.

Exit status: 0 done, 1 an error (one sentence on standard error), 2 a mistyped command, 3 no message came.
"""
# ruff: noqa: D301 - the \b in a docstring keeps click from wrapping an example

import click

from bridge import __version__
from bridge.cli import conformance, produce, pull, push, serve

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
    """


for _command in (serve.serve, serve.check, produce.produce, pull.pull, push.push, conformance.conformance):
    main.add_command(_command)
