"""A receiver of OTLP in this process, over HTTP or gRPC, by the protobufs of the SDK; and the spans that it got."""

import gzip
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final, NamedTuple, Self

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

PATIENCE: Final = 60.0
"""Seconds until spans that do not come are a failure."""
QUICK: Final = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
"""Variables of a bridge that sends its spans at once."""


class Seen(NamedTuple):
    """One span as the receiver got it; ids are hexadecimal, an empty parent is that of a root."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    links: tuple[tuple[str, str], ...]
    """Trace and span of each."""
    attributes: Mapping[str, Any]
    failed: bool
    resource: Mapping[str, Any]
    begun: int
    """Nanoseconds since 1970."""
    ended: int


class Receiver:
    """What it was sent, by whichever protocol. `ask` starts one."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Seen] = []
        self.metrics: dict[str, list[Any]] = {}
        """The latest points of each metric."""

    def take(self, request: ExportTraceServiceRequest) -> None:
        self.spans += spans_of(request)

    def take_metrics(self, request: ExportMetricsServiceRequest) -> None:
        for group in request.resource_metrics:
            assert _values(group.resource.attributes)["service.name"] == "openmessaging-bridge"
            for scope in group.scope_metrics:
                for metric in scope.metrics:
                    self.metrics[metric.name] = list(getattr(metric, metric.WhichOneof("data")).data_points)

    def wait_for(self, *names: str) -> list[Seen]:
        """Return the spans with these names, once there is at least one for each, in the order of the names."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            spans = list(self.spans)
            if set(names) <= {span.name for span in spans}:
                return [span for name in names for span in spans if span.name == name]
            time.sleep(0.02)
        raise AssertionError(f"{names} did not all come, but {[span.name for span in self.spans]}")

    @classmethod
    @contextmanager
    def over_http(cls) -> Iterator[Self]:
        receiver = cls()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the name is the library's
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                good = self.headers["content-type"] == "application/x-protobuf"
                if good and self.path == "/v1/traces":
                    receiver.take(ExportTraceServiceRequest.FromString(body))
                elif good and self.path == "/v1/metrics":
                    receiver.take_metrics(ExportMetricsServiceRequest.FromString(body))
                else:
                    good = False
                self.send_response(200 if good else 404)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
            yield receiver
            server.shutdown()

    @classmethod
    @contextmanager
    def over_grpc(cls) -> Iterator[Self]:
        receiver = cls()

        class Service(trace_service_pb2_grpc.TraceServiceServicer):
            def Export(self, request: ExportTraceServiceRequest, _: object) -> ExportTraceServiceResponse:  # noqa: N802 - the protocol's name
                receiver.take(request)
                return ExportTraceServiceResponse()

        class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
            def Export(self, request: ExportMetricsServiceRequest, _: object) -> ExportMetricsServiceResponse:  # noqa: N802 - as above
                receiver.take_metrics(request)
                return ExportMetricsServiceResponse()

        server = grpc.server(ThreadPoolExecutor(2))
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)  # type: ignore[no-untyped-call]
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), server)  # type: ignore[no-untyped-call]
        receiver.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        yield receiver
        server.stop(0).wait()


def spans_of(request: ExportTraceServiceRequest) -> Iterator[Seen]:
    for group in request.resource_spans:
        resource = _values(group.resource.attributes)
        for scope in group.scope_spans:
            for span in scope.spans:
                yield Seen(
                    span.name,
                    Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    _values(span.attributes),
                    span.status.code == 2,  # STATUS_CODE_ERROR
                    resource,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                )


def _values(attributes: Any) -> dict[str, Any]:  # noqa: ANN401 - protobuf's own container
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
