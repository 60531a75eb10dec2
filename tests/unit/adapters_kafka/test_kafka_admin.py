"""The admin's client after a defect of the library."""

from collections.abc import Sequence

import pytest

from adapters.kafka import connections
from adapters.kafka.admin import Admin
from adapters.kafka.options import Options
from bridge.errors import BackendUnavailable
from tests.kafka.driven import topics_of


class FakeClient:
    """The first one breaks down with its first request, and cannot be closed either."""

    made = 0

    def __init__(self) -> None:
        FakeClient.made += 1
        self._broken = FakeClient.made == 1

    def list_topics(self) -> Sequence[str]:
        if self._broken:
            raise RuntimeError("NetworkSelector closed!")
        return ["orders"]

    def close(self) -> None:
        if self._broken:
            raise RuntimeError("NetworkSelector closed!")


async def test_a_defect_is_one_failed_request_and_another_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeClient, "made", 0)
    monkeypatch.setattr(connections, "connect", lambda *_: FakeClient())
    admin = Admin(Options(("nowhere",)))
    with pytest.raises(BackendUnavailable, match="NetworkSelector closed"):
        await topics_of(admin, "")
    assert await topics_of(admin, "") == ["orders"]
    await admin.close()
