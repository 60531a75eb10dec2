"""`make bench`: measure, print the table, keep the run in build/. docs/performance.md says what it means."""

import argparse
import signal
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# run as a script, not installed: modules here are found as benchmarks.<name>, as ruff, mypy and an import see them
sys.path[0] = str(ROOT)

from benchmarks import (  # noqa: E402
    backlog,
    batch,
    bombs,
    callbacks,
    client,
    group_pause,
    kafka,
    latency,
    memory,
    mirror,
    prefetch,
    produce,
    produce_stream,
    profile,
    pull,
    push,
    rabbitmq,
    rates,
    report,
    results,
    transactions,
    waiting,
)
from benchmarks.plan import FULL, QUICK, Plan  # noqa: E402
from benchmarks.revision import checkout  # noqa: E402

SCENARIOS = {
    "memory": memory.measure,
    "prefetch": prefetch.measure,
    "produce": produce.measure,
    "batch": batch.measure,
    "produce-stream": produce_stream.measure,
    "pull": pull.measure,
    "push": push.measure,
    "latency": latency.measure,
    "rates": rates.measure,
    "bombs": bombs.measure,
    "callbacks": callbacks.measure,
    "client": client.measure,
    "kafka": kafka.measure,
    "transactions": transactions.measure,
    "rabbitmq": rabbitmq.measure,
    "group-pause": group_pause.measure,
    "mirror": mirror.measure,
    "backlog": backlog.measure,
    "waiting": waiting.measure,
}
LATEST = ROOT / "build" / "bench.json"


def main() -> None:
    """Measure what the options select; only a whole run replaces the one that is kept."""
    options = _options()
    # stopped from outside, leave through every `with`, so that no server and no worktree stays behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    plan = QUICK if options.quick else FULL
    if options.markdown:
        print(report.markdown(results.read(LATEST)))
    elif options.profile:
        print(profile.record(plan))
    elif options.beside:
        with checkout(options.beside) as before:
            _measure(options, plan._replace(before=before))
    else:
        _measure(options, plan)


def _measure(options: argparse.Namespace, plan: Plan) -> None:
    run, begun = results.Run.begin(plan), time.monotonic()
    failed = []
    for name in options.only or SCENARIOS:
        try:
            for measurement in SCENARIOS[name](plan):
                print(f"{time.monotonic() - begun:4.0f} s  {report.line(measurement)}", file=sys.stderr, flush=True)
                run.measurements.append(measurement)
        except Exception:  # noqa: BLE001 - half an hour of the other scenarios is not lost with one
            traceback.print_exc()
            failed.append(name)
    run.end()
    report.show(run)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    if not (options.only or options.quick):
        results.write(run, LATEST)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=SCENARIOS, help="this one alone; may be repeated")
    parser.add_argument("--quick", action="store_true", help="shorter and rougher: does it still work?")
    parser.add_argument(
        "--beside", metavar="REV", help="measure that revision of the bridge too, in turn with this one"
    )
    parser.add_argument("--profile", action="store_true", help="draw where the CPU time of one produce goes instead")
    parser.add_argument("--markdown", action="store_true", help="measure nothing; print the last whole run here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
