"""The OpenTelemetry Collector with an OTLP receiver and a file, built by Go into the cache once per machine."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.brokers.cache import go, program
from tests.brokers.ports import held_port
from tests.tracing.receiver import PATIENCE

VERSION: Final = "v0.162.0"
_MODULES: Final = (
    "go.opentelemetry.io/collector/receiver/otlpreceiver",
    "go.opentelemetry.io/collector/otelcol",
    "github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter",
)
_CONFIG: Final = """
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:%d"}, grpc: {endpoint: "127.0.0.1:%d"}}}}
exporters: {file: {path: %s}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [file]}}
"""


class Collector(NamedTuple):
    """One that runs."""

    http: str
    grpc: str
    file: Path

    def spans(self) -> list[dict[str, Any]]:
        """Return the spans that it wrote, as OTLP's JSON has them."""
        lines = self.file.read_text("utf-8").splitlines() if self.file.exists() else []
        groups = [group for line in lines for group in json.loads(line)["resourceSpans"]]
        return [span for group in groups for scope in group["scopeSpans"] for span in scope["spans"]]

    def wait_for(self, name: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for span in self.spans():
                if span["name"] == name:
                    return span
            time.sleep(0.1)
        raise AssertionError(f"{name} did not come, but {[span['name'] for span in self.spans()]}")


@contextmanager
def collector(directory: Path) -> Iterator[Collector]:
    """Run one; Missing if it cannot be built."""
    config, file = directory / "collector.yaml", directory / "spans.json"
    command = [str(program(f"otel-collector-{VERSION}", _build)), "--config", str(config)]
    with held_port() as http, held_port() as grpc, (directory / "collector.log").open("wb") as log:
        config.write_text(_CONFIG % (http, grpc, json.dumps(str(file))), "utf-8")
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_until_open(process, http, grpc)
            yield Collector(f"http://127.0.0.1:{http}", f"http://127.0.0.1:{grpc}", file)
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _build(folder: Path) -> Path:
    shutil.copy(Path(__file__).with_name("main.go"), folder)
    needed = [f"-require={module}@{VERSION}" for module in _MODULES]
    go("mod", "init", "collector", folder=folder)
    go("mod", "edit", *needed, folder=folder)
    go("build", "-mod=mod", "-o", "collector", folder=folder)
    return folder / "collector"


def _wait_until_open(process: "subprocess.Popen[bytes]", *ports: int) -> None:
    deadline = time.monotonic() + PATIENCE
    for port in ports:
        while process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        else:
            raise AssertionError(f"the Collector does not listen on {port} (status {process.returncode})")
