"""What a bridge says it can do, which decides what the other tests ask of it."""

import pytest

from .conversation import Target
from .places import Place


async def test_a_bridge_declares_exactly_what_its_backend_can_do(place: Place, bridge: Target) -> None:
    """
    > - `GET /v1/capabilities`: per backend and destination, each field: native, emulated or unsupported.
    """
    if place.declares is None:
        pytest.skip("what this bridge has to declare is not known")
    assert bridge.capabilities == place.declares
