"""A real browser with a test page, the server of that page, and a proxy in front of the bridge that loses data."""

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode, urlsplit

from tests.conformance.endpoint_server import EndpointServer

TIMEOUT: Final = 60.0
"""Seconds until a test that waits for the browser gives up: a guard, not a measurement."""
CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)


class Page:
    """Serves the page, and keeps what it reports."""

    def __init__(self, name: str = "page.html", script: str = "") -> None:
        """`script` takes the place of SCRIPT in the page."""
        self.reports: list[dict[str, Any]] = []
        reports = self.reports
        content = Path(__file__).with_name(name).read_text("utf-8").replace("SCRIPT", script).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = self.path.startswith("/?")
                self.send_response(200 if known else 404)
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(content if known else b"")

            def do_POST(self) -> None:
                reports.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = EndpointServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        self.origin = f"http://127.0.0.1:{self._server.server_port}"

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return its reports of one kind."""
        return [report for report in self.reports if report["kind"] == kind]

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of the messages that it got, in order."""
        return [base64.b64decode(report["message"]["data"]) for report in self.of("message")]

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Browser:
    """One headless Chromium that shows one page. Use it as a context manager: at the end it is gone."""

    def __init__(self, page: Page, profile: Path, bridge: str, *, resolve: str = "", **asked: str) -> None:
        """Open the page; `asked` are the parameters of its push stream. `resolve`: a name that leads to 127.0.0.1."""
        assert CHROMIUM is not None
        self._log = (profile.parent / f"{profile.name}.log").open("wb")
        self._process = subprocess.Popen(
            [
                CHROMIUM,
                *FLAGS,
                *([f"--host-resolver-rules=MAP {resolve} 127.0.0.1"] if resolve else ()),
                f"--user-data-dir={profile}",
                f"{page.origin}/?{urlencode({'bridge': bridge} | asked)}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # it has many processes, which end together
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()


class LossyProxy:
    """A TCP proxy in front of the bridge: what the bridge sends can be lost on the way, and the connections cut."""

    def __init__(self, bridge: str) -> None:
        self.dropping = False
        """What the bridge sends from now on does not arrive."""
        self.dropped = bytearray()
        self.connections = 0
        """So many have been made."""
        self.forward_to(bridge)
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def forward_to(self, bridge: str) -> None:
        """Forward new connections to this one."""
        parts = urlsplit(bridge)
        self._target = (parts.hostname or "", parts.port or 0)

    def disconnect(self) -> None:
        """End every connection."""
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.disconnect()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()  # the bridge is away
                continue
            self._open |= {near, far}
            for source, sink, lossy in ((near, far, False), (far, near, True)):
                thread = threading.Thread(target=self._carry, args=(source, sink, lossy))
                thread.start()
                self._threads.append(thread)

    def _carry(self, source: socket.socket, sink: socket.socket, lossy: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if lossy and self.dropping:
                    self.dropped += data
                else:
                    sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)
        source.close()


def wait_until(done: Callable[[], bool], what: Callable[[], object]) -> None:
    """Wait for a condition; AssertionError with `what` if it does not come."""
    deadline = time.monotonic() + TIMEOUT
    while not done():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)
