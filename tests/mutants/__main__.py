"""Judge the unit tests: change the code in one place, run the tests that concern it, see whether one of them fails.

mutmut makes the mutants and runs the tests; this draws the sample and reads the results. The work is done in a copy.
"""

import argparse
import contextlib
import os
import random
import secrets
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.mutants.read import Mutant, mutants_of
from tests.mutants.table import LEFT_OUT, TABLE

ROOT: Final = Path(__file__).resolve().parents[2]
WORK: Final = ROOT / "build" / "mutants"
COPIED: Final = ("bridge", "adapters", "tests")
ACCEPTED: Final = Path(__file__).with_name("accepted.toml")
MUTMUT: Final = "mutmut==3.8.1"
"""Its first step is called alone (`generate.py`), and what it writes is read (`read.py`)."""
LEAST: Final = 0.88
"""The share of a sample that must be killed."""
KILLED: Final = ("killed", "timeout")


class Accepted:
    """The mutants that may survive, each with its reason."""

    def __init__(self, entries: Iterable[dict[str, str]]) -> None:
        self._reasons = {(entry["file"], entry["was"], entry["becomes"]): entry["reason"] for entry in entries}

    @classmethod
    def read(cls) -> "Accepted":
        """Read the list."""
        return cls(tomllib.loads(ACCEPTED.read_text("utf-8")).get("mutant", []))

    def entries(self) -> Iterable[tuple[str, str, str]]:
        """Return each one's file, and its line before and after."""
        return self._reasons

    def reason(self, mutant: Mutant) -> str | None:
        """Return why it may survive."""
        return self._reasons.get((mutant.file, mutant.was, mutant.becomes))


def tell(text: str) -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)  # noqa: T201 - a program for the command line


def files_of(prefix: str) -> list[str]:
    """Return the modules of the table that begin so."""
    patterns = [pattern for group in TABLE for pattern in group.modules]
    found = {str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern)}
    return sorted(file for file in found if file.endswith(".py") and file.startswith(prefix))


def concerning(files: Sequence[str]) -> list[str]:
    """Return the tests that concern these modules."""
    return sorted(
        {
            test
            for group in TABLE
            for test in group.tests
            if any((ROOT / file).match(pattern) for pattern in group.modules for file in files)
        }
    )


def draw(mutants: Sequence[Mutant], size: int, seed: int) -> list[Mutant]:
    """Draw a sample: the same one for the same seed and the same code."""
    ordered = sorted(mutants, key=lambda mutant: mutant.name)
    return random.Random(seed).sample(ordered, min(size, len(ordered)))  # noqa: S311 - no secret


def prepare(files: Sequence[str]) -> None:
    """Copy the sources and the tests, and write mutmut's settings beside them."""
    shutil.rmtree(WORK, ignore_errors=True)
    for folder in COPIED:
        shutil.copytree(ROOT / folder, WORK / folder, ignore=shutil.ignore_patterns("__pycache__"))
    arguments = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "tests.mutants.cheapest_first", "-W", "ignore"]
    arguments += [f"--deselect={test}" for test in LEFT_OUT]
    settings = f"""
[tool.mutmut]
source_paths = ["bridge", "adapters"]
only_mutate = {list(files)}
also_copy = ["tests"]
pytest_add_cli_args = {arguments}
pytest_add_cli_args_test_selection = {concerning(files)}
timeout_multiplier = 4.0
timeout_constant = 5.0
track_dependencies = false
use_git_change_detection = false
"""
    (WORK / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text("utf-8") + settings, "utf-8")


def run(log: Path, *command: str) -> int:
    """Run a step in the copy; its output goes to the log."""
    # CI: hypothesis draws the same examples each time. PYTHONPATH would bring the unchanged sources back.
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | {"CI": "true"}
    with log.open("a", encoding="utf-8") as output:
        return subprocess.run(
            [sys.executable, *command], cwd=WORK, env=environment, stdout=output, stderr=output, check=False
        ).returncode


def results(names: Iterable[str]) -> dict[str, str]:
    """Return mutmut's verdict on each mutant."""
    told = subprocess.run(
        [sys.executable, "-m", "mutmut", "results", "--all", "true"],
        cwd=WORK, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    verdicts = dict(line.strip().rsplit(": ", 1) for line in told.splitlines() if ": " in line)
    return {name: verdicts[name] for name in names}


def report(sample: Sequence[Mutant], verdicts: dict[str, str], accepted: Accepted) -> float:
    """Print what became of each, and return the share that was killed."""
    for mutant in sorted(sample, key=lambda mutant: (mutant.file, mutant.line)):
        verdict, reason = verdicts[mutant.name], accepted.reason(mutant)
        if verdict == "timeout":
            tell(f"killed by a timeout: {mutant}")
        elif verdict not in KILLED:
            tell(f"{verdict}{f', accepted ({reason})' if reason else ''}: {mutant}")
    folders = Counter(str(Path(mutant.file).parent) for mutant in sample)
    killed = Counter(str(Path(mutant.file).parent) for mutant in sample if verdicts[mutant.name] in KILLED)
    for folder in sorted(folders):
        tell(f"{folder:<28} {killed[folder]:>4} of {folders[folder]:>4}")
    known = sum(1 for m in sample if verdicts[m.name] not in KILLED and accepted.reason(m))
    share = killed.total() / len(sample)
    tell(
        f"{killed.total()} of {len(sample)} mutants are killed: {share:.1%}; at least {LEAST:.0%} is asked for."
        f" {known} of the {len(sample) - killed.total()} survivors stand in {ACCEPTED.name} with a reason."
    )
    return share


def main() -> int:
    """Return 0 if enough mutants were killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=300, help="mutants to run (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="repeats a sample (default: another each time; it is printed)")
    parser.add_argument("--modules", default="", metavar="PREFIX", help="only modules whose path begins so")
    parser.add_argument("--workers", type=int, default=2, help="mutants to run at a time (default: %(default)s)")
    options = parser.parse_args()
    if find_spec("mutmut") is None:
        parser.error(f"mutmut is not installed here: pip install {MUTMUT}")
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    files = files_of(options.modules)
    if not files:
        parser.error(f"no module of tests/mutants/table.py begins with {options.modules}")
    prepare(files)
    log = WORK / "run.log"
    if run(log, str(Path(__file__).with_name("generate.py")), str(options.workers)):
        tell(f"mutmut could not write the mutants; see {log}")
        return 2
    mutants = [mutant for file in files for mutant in mutants_of(file, WORK)]
    sample = draw(mutants, options.sample, seed)
    tell(f"seed {seed}: {len(sample)} of {len(mutants)} mutants in {len(files)} modules")
    names = [mutant.name for mutant in sample]
    if run(log, "-m", "mutmut", "run", "--max-children", str(options.workers), *names):
        tell(f"the tests fail without any mutant; see {log}")
        return 2
    return 0 if report(sample, results(names), Accepted.read()) >= LEAST else 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
