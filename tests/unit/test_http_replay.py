"""Without the power to read its logs again, a backend has no such paths."""

from typing import cast

import pytest

from adapters.base import Adapter
from bridge.engine.engine import Engine
from bridge.errors import NotFound
from bridge.http.exchange import Guarded, Request
from bridge.http.replay import Replay
from bridge.wire.headers import Headers


class _Backed:
    """An engine as far as it is looked at."""

    adapter = cast("Adapter", object())


@pytest.mark.parametrize("what", ["logs", "read"])
async def test_a_backend_without_the_power_has_no_log(what: str) -> None:
    replay = Replay(cast("Engine", _Backed()))
    asked = Headers({}, {}, {"version": "1.0.0", "log": "x"}, {})
    with pytest.raises(NotFound, match="read the broker's own"):
        await getattr(replay, what)(Request(asked, b"", b"", "", cast("Guarded", None)))
