"""Calls of the engine that return a result, or a coroutine of it if something has to be waited for."""

from collections.abc import Coroutine
from inspect import isawaitable
from typing import Any, TypeVar

from bridge.engine.entries_and_receipts import Entry
from bridge.engine.group import Group
from bridge.engine.pull_and_prefetch import PullRequest

T = TypeVar("T")


async def result(call: T | Coroutine[Any, Any, T]) -> T:
    """Return the result of a call, for which it waits if it must."""
    return (await call) if isawaitable(call) else call


async def lease(group: Group, pull_request: PullRequest) -> Entry | None:
    """Return the next entry, for which it waits if none is ready."""
    return group.lease(pull_request) or await group.wait_for_lease(pull_request)
