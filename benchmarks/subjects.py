"""What a row compares, each a running process: the bare applications, the revision before, and the bridge."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final, TypeVar

from benchmarks.launch import ROOMY, Process, bare, bridge
from benchmarks.measurement import BEFORE, BRIDGE
from benchmarks.plan import Plan
from benchmarks.revision import THIS, Revision

BARE: Final = "bare application"
"""ASGI."""
RSGI: Final = "bare RSGI application"

Subjects = Mapping[str, Process]
S = TypeVar("S")
T = TypeVar("T")


def revisions(plan: Plan) -> dict[str, Revision]:
    """Return the revisions under measurement, the one before first."""
    return ({} if plan.before is None else {BEFORE: plan.before}) | {BRIDGE: THIS}


@contextmanager
def bridges(
    plan: Plan, server: str, backend: str = ROOMY, settings: Mapping[str, str] | None = None
) -> Iterator[Subjects]:
    """Start a bridge of each revision. The words `{name}` in `backend` are replaced by `before` or `bridge`."""
    with ExitStack() as running:
        yield {
            name: running.enter_context(bridge(server, backend.replace("{name}", name.split()[-1]), settings, revision))
            for name, revision in revisions(plan).items()
        }


@contextmanager
def subjects(plan: Plan, server: str, settings: Mapping[str, str] | None = None) -> Iterator[Subjects]:
    """Start the bare applications of that server and a bridge of each revision."""
    kinds = {BARE: server} | ({RSGI: "rsgi"} if server == "granian" else {})
    with ExitStack() as running:
        bares = {name: running.enter_context(bare(kind)) for name, kind in kinds.items()}
        yield bares | dict(running.enter_context(bridges(plan, server, settings=settings)))


def in_turn(plan: Plan, among: Mapping[str, S], load: Callable[[S, int], T]) -> dict[str, list[T]]:
    """Load one after the other, and all of them again in each round: A B A B. `load` gets the number of the round."""
    samples: dict[str, list[T]] = {name: [] for name in among}
    for turn in range(plan.rounds):
        for name, subject in among.items():
            samples[name].append(load(subject, turn))
    return samples
