"""`mirror verify`: whether everything is there, once."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import sys

import click

from bridge.mirror.commands.stated import stated


@click.command()
@click.option("--out", required=True, metavar="PATH", help="The mirror: any path that Spark knows.")
@click.option("--backend", envvar="OMS_BACKEND", metavar="URL", help="Also ask what it keeps: what is behind, or lost.")
@click.option("--bridge", default="http://127.0.0.1:8080", show_default=True, help="The bridge of a memory:// backend.")
@click.option("--ledger", metavar="FILE", help="NDJSON of confirmed messages: messageId and, where known, destination.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every finding.")
def verify(out: str, backend: str | None, bridge: str, ledger: str | None, as_json: bool) -> None:
    """Reconcile the mirror's files with its manifests, its offsets with themselves, and all with what others know.

    Each row of each log once, no file missing, changed or unknown, no offset skipped unless it is a gap that was
    recorded. The ledger holds one line per confirmed publish, as `produce --json` prints it: a message that was
    pruned, that is delayed and not due yet, or that had expired when it was published is missing in the mirror.

    Exit status: 0 all is well, 1 something is wrong, or could not be checked, 3 nothing but that the mirror is behind.

    \b
    oms-bridge mirror verify --out /srv/mirror
    oms-bridge mirror verify --out /srv/mirror --backend kafka://localhost:9092 --ledger confirmed.ndjson --json
    """
    with stated(as_json=as_json):
        sys.exit(_verify(out, backend, bridge, ledger, as_json=as_json))


def _verify(out: str, backend: str | None, bridge: str, ledger: str | None, *, as_json: bool) -> int:
    from bridge.mirror.options import Options
    from bridge.mirror.session import session
    from bridge.mirror.sink.files import Files
    from bridge.mirror.sources import open_source
    from bridge.mirror.verify import show
    from bridge.mirror.verify.facts import gather
    from bridge.mirror.verify.judge import judge, status

    bounds = None if backend is None else open_source(Options(backend, out, bridge)).bounds
    with session("oms-bridge mirror verify") as spark:
        facts = gather(spark, Files(spark, out), bounds, ledger, None if as_json else show.SHOWN)
    findings = judge(facts)
    shown = show.as_json if as_json else show.as_text
    click.echo(shown(facts, findings, asked_ledger=ledger is not None))
    return status(findings)
