"""A traced mirror and a receiver of OTLP: the span of each batch, with links to the produces of its messages."""

import os
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.mirror.deployment import GUARD, Deployment, deployed
from tests.tracing.receiver import Receiver, Seen

pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("quick_jvm")]

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPANS = ("00000000000000a1", "00000000000000a2")


def produce(place: Deployment, destination: str, *traceparents: str) -> None:
    """Produce a message for each trace context."""
    for traceparent in traceparents:
        headers = {"x-oms-version": "1.0.0", "x-oms-h-destination": destination, "traceparent": traceparent}
        sent = httpx.post(f"{place.bridge.url}/v1/messages", headers=headers, content=b"1", trust_env=False, timeout=60)
        assert sent.status_code == 200, sent.text


def mirrored(place: Deployment, receiver: Receiver, name: str) -> Seen:
    """Mirror what there is, in one batch; return its span."""
    variables = os.environ | {"OMS_TRACING__ENDPOINT": receiver.url}
    receiver.spans.clear()
    done = subprocess.run(place.command(), capture_output=True, text=True, timeout=GUARD, env=variables, check=False)
    assert done.returncode == 0, done.stderr
    [span] = receiver.wait_for(name)
    return span


def test_a_batch_has_a_span_with_links_to_its_messages(tmp_path: Path) -> None:
    with deployed("memory", tmp_path) as place, Receiver.over_http() as receiver:
        produce(place, "orders", *(f"00-{TRACE}-{span}-01" for span in SPANS), f"00-{TRACE}-00000000000000a3-00")
        span = mirrored(place, receiver, "mirror orders")
        assert (span.kind, span.parent, span.failed) == ("CONSUMER", "", False)
        assert {name.removeprefix("messaging."): value for name, value in span.attributes.items()} == {
            "system": "openmessaging",
            "operation.name": "mirror",
            "operation.type": "process",
            "destination.name": "orders",
            "batch.message_count": 3,
        }
        assert sorted(span.links) == [(TRACE, each) for each in SPANS], "one message is not sampled"
        assert span.begun < span.ended

        produce(place, "orders", f"00-{TRACE}-00000000000000b1-01")
        produce(place, "returns", f"00-{TRACE}-00000000000000b2-01")
        span = mirrored(place, receiver, "mirror")
        assert sorted(span.links) == [(TRACE, "00000000000000b1"), (TRACE, "00000000000000b2")], "of this batch only"
        assert "messaging.destination.name" not in span.attributes
