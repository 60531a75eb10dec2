"""A trap for every test that needs one, and a bridge to be fuzzed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.frames import Frames
from tests.http.asking import fresh, store, stored
from tests.launch import Bridge
from tests.security.endpoint import Trap


@pytest.fixture
def trap() -> Iterator[Trap]:
    """Hold a port on which nothing may connect."""
    trap = Trap()
    yield trap
    trap.close()


@pytest.fixture(params=["hypercorn", "granian"])
def fuzzed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bridge]:
    """Return a bridge that must be well after the fuzzing."""
    options = {"OMS_LIMITS__BODY": "65536", "OMS_DELIVERY__LEASE": "1000", "OMS_LIMITS__CLIENT_SHARE": "100"}
    with Bridge(tmp_path, server=request.param, settings=options) as bridge:
        yield bridge
        with Frames(bridge.url) as stranger:
            target = fresh()
            store(stranger, target)
            assert stored(stranger, target) == [b"good"]
        assert '"level": "error"' not in bridge.log
        assert "Traceback" not in bridge.log
        assert bridge.terminate() == 0
