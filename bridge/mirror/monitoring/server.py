"""The management port of a mirror: probes, metrics, status; never messages.

The standard library's HTTP server in its own thread: the job has no event loop, and a scrape every few seconds needs
none. Labels of metrics come from fixed tables: no log or destination of a broker is one.
"""

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from typing import Final

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bridge.errors import CannotStart
from bridge.mirror.monitoring.status import Status
from bridge.server.listener import Listener, bind
from bridge.settings import Address

disable_created_metrics()  # type: ignore[no-untyped-call]  # series without readers

_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

_COUNTERS: Final[dict[str, tuple[str, Callable[[Status], int]]]] = {
    "bytes": ("Bytes of the Parquet files written.", lambda status: status.bytes),
    "files": ("Parquet files written.", lambda status: status.files),
    "batches": ("Batches committed.", lambda status: status.batches),
    "gaps": ("Ranges of offsets that were dropped before they could be read.", lambda status: status.gap_count),
    "restarts": ("Restarts of the query.", lambda status: status.restarts),
}
_GAUGES: Final[dict[str, tuple[str, Callable[[Status], float | None]]]] = {
    "up": (
        "1 while the query runs, and its backend and its storage can be reached.",
        lambda status: status.state == "running",
    ),
    "rows_per_second": ("Rows mirrored per second, between the last two triggers.", lambda s: s.rows_per_second),
    "lag_seconds": (
        "Seconds since the mirror last held everything that the backend had; 0 if it did at the last look.",
        lambda status: status.lag_seconds(datetime.now(UTC)),
    ),
    "lag_rows": ("Offsets that the mirror has not written yet.", lambda status: status.lag["rows"]),
    "lag_rows_max": (
        "Offsets not written yet of the log that is furthest behind.",
        lambda status: None if status.lag["rows"] is None else sum(log["rows"] for log in status.lag["worst"][:1]),
    ),
    "lag_logs": ("Logs that are behind.", lambda status: status.lag["logs"]),
    "unmirrored_destinations": ("Destinations that cannot be mirrored.", lambda status: status.unmirrored_count),
    "last_commit_timestamp_seconds": (
        "Time of the last commit.",
        lambda status: status.last_commit["time"].timestamp() if status.last_commit else None,
    ),
}
"""None: unknown; the metric is absent."""


class StatusCollector(Collector):
    """The metrics of one mirror that its status holds."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families; the registry calls it on a scrape."""
        rows = CounterMetricFamily("oms_mirror_rows", "Rows mirrored.", labels=("area",))
        for area, name in (("data", "messages"), ("dead-letters", "dead_letters"), ("quarantine", "quarantined")):
            rows.add_metric((area,), getattr(self._status, name))
        yield rows
        for name, (meaning, counter) in _COUNTERS.items():
            yield CounterMetricFamily(f"oms_mirror_{name}", meaning, value=counter(self._status))
        for name, (meaning, gauge) in _GAUGES.items():
            if (value := gauge(self._status)) is not None:
                yield GaugeMetricFamily(f"oms_mirror_{name}", meaning, value=value)


def registry(status: Status) -> tuple[CollectorRegistry, Histogram]:
    """Return all metrics of a mirror, and the one that counts how long each phase of a batch took, in seconds."""
    made = CollectorRegistry(auto_describe=False)
    made.register(StatusCollector(status))
    ProcessCollector(registry=made)
    name = "oms_mirror_batch_duration_seconds"
    return made, Histogram(name, "Time of a batch.", ("phase",), registry=made, buckets=_BUCKETS)


_TIMEOUT: Final = 10.0
"""Seconds that a client may be silent."""

Response = tuple[int, str, bytes]
"""Status, media type, body."""
Pages = Mapping[str, Callable[[], Response]]
"""By path."""


_log = logging.getLogger(__name__)


@contextmanager
def serving(address: Address, pages: Pages) -> Iterator[Address]:
    """Serve the pages while the block runs; yields the actual address. Raises `CannotStart` if it cannot listen."""
    try:
        listening = bind(Listener(*address))
    except OSError as error:
        raise CannotStart(f"the metrics cannot be served: {error.strerror}") from error
    server = _Server(listening, pages)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="oms-mirror-port", daemon=True)
    thread.start()
    try:
        yield Address(address.host, listening.getsockname()[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    block_on_close = False

    def __init__(self, listening: socket, pages: Pages) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.pages = pages

    def handle_error(self, *_: object) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):  # those are clients that disconnect
            _log.error("a defect of the mirror's port", exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    timeout = _TIMEOUT
    server: _Server

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        status, media_type, body = (404, "text/plain", b"not found\n") if page is None else page()
        self.send_response(status)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def version_string(self) -> str:
        return "oms-bridge"

    def log_message(self, *_: object) -> None:
        """Log no requests."""
