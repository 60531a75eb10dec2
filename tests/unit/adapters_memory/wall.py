"""The wall clock of the memory backend, in the hand of a test."""

from collections.abc import Callable

import pytest

from adapters.memory import adapter, durable_adapter, transactions


def set_wall(monkeypatch: pytest.MonkeyPatch, read: Callable[[], int]) -> None:
    """Let every module of the backend read this clock.

    One of them left out, a commit that takes 40 ms on a busy disk made a message due that was to wait: CI saw it once.
    """
    for module in (adapter, durable_adapter, transactions):
        monkeypatch.setattr(module, "wall", read)
