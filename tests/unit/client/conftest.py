"""The client's tests do not wait between attempts."""

import pytest


@pytest.fixture(autouse=True)
def _no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.client.request_sender.FIRST_DELAY", 0.0)
