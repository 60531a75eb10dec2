"""A request is repeated until it succeeds, or until its caller gives up."""

import pytest

from adapters.amqp.retry import retry
from bridge.errors import BackendUnavailable, BridgeError, Refused


async def test_a_request_is_repeated_until_it_succeeds() -> None:
    errors: list[BridgeError] = [BackendUnavailable("1"), Refused("2")]
    expected, failed = list(errors), list[BridgeError]()

    async def call() -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    assert await retry(call, failed.append) == "done"
    assert failed == expected


async def test_a_caller_gives_up_by_raising() -> None:
    calls = []

    async def call() -> None:
        calls.append(1)
        raise Refused("never")

    def failed(error: BridgeError) -> None:
        raise error

    with pytest.raises(Refused, match="never"):
        await retry(call, failed)
    assert calls == [1]


async def test_other_errors_are_not_repeated() -> None:
    async def call() -> None:
        raise KeyError("defect")

    with pytest.raises(KeyError):
        await retry(call, lambda _error: None)
