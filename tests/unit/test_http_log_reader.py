"""Without the power to read its logs again, a backend has no such paths."""

from typing import cast

import pytest

from adapters.base import Adapter
from bridge.engine.engine import Engine
from bridge.errors import NotFound
from bridge.http.log_reader import LogReader
from bridge.http.request_and_reply import BodyStream, CancelOnDisconnect, Request
from bridge.long_work import Slicer
from bridge.wire.headers import Headers


class _Backed:
    """An engine as far as it is looked at."""

    adapter = cast("Adapter", object())


@pytest.mark.parametrize("what", ["logs", "read"])
async def test_a_backend_without_the_power_has_no_log(what: str) -> None:
    replay = LogReader(cast("Engine", _Backed()), Slicer())
    headers = Headers({}, {}, {"version": "1.0.0", "log": "x"}, {})
    with pytest.raises(NotFound, match="the broker's own client"):
        await getattr(replay, what)(
            Request(headers, 0, b"", "/v1/log", b"", "", cast("CancelOnDisconnect", None), cast("BodyStream", None))
        )
