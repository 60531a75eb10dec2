"""One node of a Kafka: a broker and a controller in one process, with its data and its log."""

import shlex
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.brokers.runtime import Run, Runtime

START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 60.0
_READY: Final = b"Kafka Server started"  # logged once the controller has let the broker serve


class Node:
    """Stopped, killed and started again by itself; its data stays."""

    def __init__(
        self, runtime: Runtime, data: Path, cluster: str, properties: Mapping[str, str], credentials: list[str]
    ) -> None:
        """Write its configuration beside `data`, the folder that it will make for its data."""
        file = data.with_suffix(".properties")
        settings = {**properties, "log.dirs": str(data)}
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), "utf-8")
        arguments = shlex.join(["format", f"--cluster-id={cluster}", f"--config={file}", *credentials])
        self._script = (
            f"[ -e {shlex.quote(str(data))}/meta.properties ] || {runtime.java} kafka.tools.StorageTool {arguments}"
            f" && exec {runtime.java} kafka.Kafka {shlex.quote(str(file))}"
        )
        self._runtime = runtime
        self._run: Run | None = None
        self._seen = 0
        self.data = data
        self.log_file = data.with_suffix(".log")
        self.log_file.touch()

    @property
    def pid(self) -> int:
        """Its process id; AssertionError if it is not running."""
        assert self._run is not None, "this node is not running"
        return self._run.pid

    @property
    def log(self) -> str:
        """What it wrote so far, in all its runs."""
        return self.log_file.read_text("utf-8", "backslashreplace")

    def start(self) -> None:
        """Start it and wait until it serves. In a cluster that needs a majority of the nodes: `Kafka.start`."""
        self.launch()
        self.wait_until_ready()

    def stop(self) -> None:
        """End it with SIGTERM: it hands over what it leads, and flushes."""
        self.send(signal.SIGTERM)
        self.wait()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.send(signal.SIGKILL)
        self.wait()

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()

    def launch(self) -> None:
        """Start it and do not wait."""
        assert self._run is None, "this node is running"
        self._seen = self.log_file.stat().st_size
        self._run = self._runtime.run(self._script, self.log_file)

    def wait_until_ready(self) -> None:
        """Wait until it serves; AssertionError with its log if it ends or that takes too long."""
        assert self._run is not None, "this node is not running"
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._run.alive:
            with self.log_file.open("rb") as log:
                log.seek(self._seen)
                if _READY in log.read():
                    return
            time.sleep(0.05)
        raise AssertionError(f"{self.data} did not become ready.\n{self.log}")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal and do not wait, or do nothing if it is not running."""
        if self._run is not None:
            self._run.send(number)

    def wait(self) -> None:
        """Wait for its end; AssertionError with its log if it does not come, and it is killed."""
        if self._run is None:
            return
        run, self._run = self._run, None
        try:
            run.wait(STOP_SECONDS)
        except TimeoutError as late:
            run.send(signal.SIGKILL)
            run.wait(STOP_SECONDS)
            raise AssertionError(f"{late}\n{self.log}") from None
