"""The metrics of a bridge at a receiver of OTLP."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bridge.settings.model import TracingSettings
from tests.conformance.frames import Frames
from tests.http.asking import store
from tests.http.streaming import wait_until
from tests.launch import Bridge
from tests.tracing.receiver import Receiver


def attributes(point: Any) -> dict[str, str]:  # noqa: ANN401 - protobuf's own
    return {each.key: each.value.string_value for each in point.attributes}


@pytest.mark.parametrize("protocol", ["http", pytest.param("grpc", marks=pytest.mark.extended)])
def test_the_receiver_gets_what_the_page_of_metrics_shows(tmp_path: Path, protocol: str) -> None:
    with Receiver.over_http() if protocol == "http" else Receiver.over_grpc() as receiver:
        settings = {"ENDPOINT": receiver.url, "PROTOCOL": protocol, "METRICS": "1000"}
        with Bridge(tmp_path, settings={f"OMS_TRACING__{name}": value for name, value in settings.items()}) as bridge:
            wait_until(lambda: "oms_ready" in receiver.metrics, receiver.metrics.keys)
            with Frames(bridge.url) as frames:
                for _ in range(3):
                    store(frames, b"orders")
            assert bridge.terminate() == 0  # the last export has all of it
    found = receiver.metrics
    (produced,), (build,) = found["oms_produced"], found["oms_build_info"]
    assert produced.as_double == 3
    assert produced.start_time_unix_nano < produced.time_unix_nano
    assert attributes(build).keys() == {"version", "python"}
    stored = {attributes(point)["destination"]: point.as_double for point in found["oms_destination_stored"]}
    assert stored == {"other": 0, "orders": 3}
    seconds = {attributes(point)["route"]: point for point in found["oms_request_duration_seconds"]}
    of_produce = seconds["POST /v1/messages"]
    assert of_produce.count == sum(of_produce.bucket_counts) == 3
    assert len(of_produce.bucket_counts) == len(of_produce.explicit_bounds) + 1
    assert of_produce.sum > 0
    assert not of_produce.HasField("min")


def test_metrics_need_a_receiver() -> None:
    with pytest.raises(ValidationError, match=r"tracing\.metrics needs tracing\.endpoint"):
        TracingSettings(metrics=1000)
