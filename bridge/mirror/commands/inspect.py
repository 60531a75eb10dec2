"""`mirror verify` and `mirror report`: what the mirror holds, beside its backend."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import click

from bridge.cli.command import printable
from bridge.mirror.commands.options import MirrorCommand, backend_option, bridge_option, json_option, out_option
from bridge.mirror.verify import Finding, Observations, evaluate, status


@click.command(cls=MirrorCommand)
@out_option
@backend_option("Also compare with this backend: offsets that are behind or lost.")
@bridge_option
@click.option("--ledger", metavar="FILE", help="NDJSON of confirmed messages: messageId and, if known, destination.")
@json_option("with every finding")
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
    from bridge.mirror.sources import Options, open_source
    from bridge.mirror.verify_observations import gather

    bounds = None if backend is None else open_source(Options(backend, out, bridge)).bounds
    observations = gather(out, bounds, ledger, None if as_json else SHOWN)
    findings = evaluate(observations)
    report = findings_as_json if as_json else findings_as_text
    click.echo(report(observations, findings))
    if ledger is not None and observations.ledger is None:
        click.echo("The ledger was not compared: messages cannot be read.", err=True)
    sys.exit(status(findings))


SHOWN: Final = 20
"""Lines of one kind that a person is shown."""
_WORDS: Final = {0: "no errors", 1: "errors found", 3: "no errors, but the mirror is behind"}


def findings_as_text(observations: Observations, findings: Sequence[Finding]) -> str:
    """Return a line for each finding, the first ones of each kind, and the verdict."""
    ledger = observations.ledger
    missing = 0 if ledger is None else ledger.missing
    counts = {
        "ledger-missing": missing,
        "ledger-behind": missing,
        "ledger-doubled": 0 if ledger is None else ledger.doubled,
    }
    lines = [*_finding_lines(findings, counts)]
    widths = [max((len(line[column]) for line in lines), default=0) for column in (0, 1, 2)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, [*widths, 0], strict=True)) for line in lines]
    sums = [f"{observations.rows} rows in {len(observations.files)} files of {len(observations.covered)} logs"]
    if ledger is not None:
        sums.append(f"ledger: {ledger.confirmed} confirmed, {ledger.missing} missing, {ledger.doubled} duplicated")
    return "\n".join([*(line.rstrip() for line in text), *sums, _WORDS[status(findings)]])


def findings_as_json(observations: Observations, findings: Sequence[Finding]) -> str:
    """Return one object with every finding."""
    ledger = None if observations.ledger is None else observations.ledger._asdict()
    return json.dumps(
        {
            "status": status(findings),
            "rows": observations.rows,
            "files": len(observations.files),
            "logs": len(observations.covered),
            "ledger": ledger and {name: value for name, value in ledger.items() if name != "named"},
            "findings": [{"weight": f.weight, **f._asdict()} for f in findings],
        }
    )


def _finding_lines(findings: Sequence[Finding], unnamed: Mapping[str, int]) -> Iterator[tuple[str, str, str, str]]:
    """`unnamed`: how many there are of a kind of which only the first have names here."""
    for kind, all_of_it in groupby(findings, key=lambda finding: finding.kind):
        of_kind = list(all_of_it)
        for finding in of_kind[:SHOWN]:
            yield (finding.weight, kind, printable(finding.subject), printable(finding.says))
        if (more := max(len(of_kind), unnamed.get(kind, 0)) - SHOWN) > 0:
            yield (of_kind[0].weight, kind, "…", f"and {more} more; --json names them all")


@click.command(cls=MirrorCommand)
@out_option
@click.option("--html", type=click.Path(path_type=Path), default="mirror-report.html", show_default=True)
@backend_option("Also show how far the mirror is behind this backend.")
@bridge_option
def report(out: str, html: Path, backend: str | None, bridge: str) -> None:
    """Write one HTML page about the mirror: traffic, sizes, latency, expired and dead letters, gaps, quarantine.

    The page is a single file without scripts, and loads nothing else. It names destinations, groups and errors,
    and shows no bodies.

    \b
    oms-bridge mirror report --out /srv/mirror --html /var/www/mirror.html
    """
    from bridge.mirror.report import count
    from bridge.mirror.report_page import page
    from bridge.mirror.sources import Options, open_source

    bounds = None if backend is None else open_source(Options(backend, out, bridge)).bounds()
    html.write_text(page(count(out, bounds, time.time_ns() // 1_000_000)), "utf-8")
    click.echo(f"written {html}")
