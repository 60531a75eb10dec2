"""The real OpenTelemetry Collector takes the spans, by both protocols."""

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.brokers.cache import Missing
from tests.launch import Bridge
from tests.tracing.collector.program import Collector, collector
from tests.tracing.receiver import PATIENCE, QUICK

pytestmark = pytest.mark.extended

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    try:
        with collector(tmp_path_factory.mktemp("collector")) as running:
            yield running
    except Missing as missing:
        advice = f"No OpenTelemetry Collector: {missing}. Install Go (go.dev/dl)"
        if os.environ.get("CI") == "true":
            pytest.fail(advice)
        pytest.skip(advice)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_collector_takes_the_spans(protocol: str, running: Collector, tmp_path: Path) -> None:
    endpoint = running.http if protocol == "http" else running.grpc
    settings = {"OMS_TRACING__ENDPOINT": endpoint, "OMS_TRACING__PROTOCOL": protocol, **QUICK}
    with Bridge(tmp_path, settings=settings) as bridge:
        headers = {"x-oms-version": "1.0.0", "x-oms-h-destination": protocol, "traceparent": f"00-{TRACE}-{PARENT}-01"}
        sent = httpx.post(f"{bridge.url}/v1/messages", headers=headers, trust_env=False, timeout=PATIENCE)
        assert sent.status_code == 200
        span = running.wait_for(f"send {protocol}")
    attributes = {each["key"]: each["value"] for each in span["attributes"]}
    assert (span["traceId"], span["parentSpanId"]) == (TRACE, PARENT)
    assert attributes["messaging.message.id"] == {"stringValue": sent.headers["x-oms-h-messageid"]}
