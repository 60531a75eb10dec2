"""One run: where it was made, what was measured, and its file."""

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.load import generator
from benchmarks.measurement import Measurement, Round, Sample, Target
from benchmarks.plan import Plan

PACKAGES: Final = (
    *("openmessaging-bridge", "hypercorn", "granian", "uvloop", "h2", "starlette"),
    *("kafka-python", "confluent-kafka", "pika"),
)


@dataclass
class Run:
    """One run of the benchmark."""

    begun: str
    revision: str
    machine: dict[str, Any]
    versions: dict[str, str]
    plan: dict[str, Any]
    seconds: float = 0.0
    measurements: list[Measurement] = field(default_factory=list)

    @classmethod
    def begin(cls, plan: Plan) -> Self:
        """Note where and on what this run is made."""
        sizes = plan._asdict() | {"before": plan.before.name if plan.before else None}
        return cls(_now().isoformat(timespec="seconds"), _revision(), _machine(), _versions(), sizes)

    def end(self) -> None:
        """Note how long it took."""
        self.seconds = round((_now() - datetime.fromisoformat(self.begun)).total_seconds(), 1)


def write(run: Run, path: Path) -> None:
    """Keep a run, every raw round and the medians with it."""
    document = asdict(run)
    for kept, measurement in zip(document["measurements"], run.measurements, strict=True):
        kept["ratio"] = measurement.ratio
        kept["reached"] = measurement.reached
        # asdict leaves named tuples as tuples of dicts' values: name them
        kept["rounds"] = [{side: sample._asdict() for side, sample in r._asdict().items()} for r in measurement.rounds]
        kept["target"] = measurement.target._asdict() if measurement.target else None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")


def read(path: Path) -> Run:
    """Read a run back."""
    document = json.loads(path.read_text("utf-8"))
    document["measurements"] = [_measurement(kept) for kept in document["measurements"]]
    return Run(**document)


def _measurement(kept: dict[str, Any]) -> Measurement:
    rounds = [Round(Sample(**r["ceiling"]), Sample(**r["figure"])) for r in kept["rounds"]]
    target = Target(**kept["target"]) if kept["target"] else None
    return Measurement(kept["name"], kept["unit"], kept["against"], rounds, target, kept["by"])


def _now() -> datetime:
    return datetime.now(UTC)


def _revision() -> str:
    root = Path(__file__).parent
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=root, capture_output=True, text=True, check=False
    )
    return said.stdout.strip() or "unknown"


def _machine() -> dict[str, Any]:
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    memory = next((int(line.split()[1]) >> 20 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {"cpu": model, "cores": os.cpu_count(), "memory_gib": memory, "system": platform.platform(terse=True),
            "load_before": os.getloadavg()[0]}  # fmt: skip


def _lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8", "replace").splitlines()


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "load": generator()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
