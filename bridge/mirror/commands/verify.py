"""`mirror verify`: whether everything is there, once."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import sys

import click

from bridge.mirror.commands.shared_options import out_option
from bridge.mirror.commands.stated import stated


@click.command()
@out_option
@click.option(
    "--backend",
    envvar="OMS_BACKEND",
    metavar="URL",
    help="Also compare with this backend: offsets that are behind or lost.",
)
@click.option("--bridge", default="http://127.0.0.1:8080", show_default=True, help="The bridge of a memory:// backend.")
@click.option("--ledger", metavar="FILE", help="NDJSON of confirmed messages: messageId and, if known, destination.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every finding.")
def verify(out: str, backend: str | None, bridge: str, ledger: str | None, as_json: bool) -> None:
    """Check that the mirror holds every message once: files, recorded offsets, backend and ledger.

    Each row of each log must be there once, within the offsets that the commits record, and no file of the tables may
    be missing or changed. The ledger holds one line per confirmed publish, as `produce --json` prints it. A message of
    the ledger that was pruned, is not due yet, or had expired when it was published counts as missing.

    Exit status: 0 no errors, 1 errors found, or the check failed, 3 no errors, but the mirror is behind.

    \b
    oms-bridge mirror verify --out /srv/mirror
    oms-bridge mirror verify --out /srv/mirror --backend kafka://localhost:9092 --ledger confirmed.ndjson --json
    """
    with stated(as_json=as_json):
        sys.exit(_verify(out, backend, bridge, ledger, as_json=as_json))


def _verify(out: str, backend: str | None, bridge: str, ledger: str | None, *, as_json: bool) -> int:
    from bridge.mirror.options import Options
    from bridge.mirror.sources import open_source
    from bridge.mirror.verify import show
    from bridge.mirror.verify.findings import evaluate, status
    from bridge.mirror.verify.observations import gather

    bounds = None if backend is None else open_source(Options(backend, out, bridge)).bounds
    observations = gather(out, bounds, ledger, None if as_json else show.SHOWN)
    findings = evaluate(observations)
    shown = show.as_json if as_json else show.as_text
    click.echo(shown(observations, findings, with_ledger=ledger is not None))
    return status(findings)
