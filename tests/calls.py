"""Calls of the engine that return a result, or a coroutine of it if something has to be waited for."""

from collections.abc import Coroutine
from inspect import isawaitable
from typing import Any, TypeVar, cast

from bridge.engine.engine import Pulled
from bridge.engine.entries_and_receipts import Entry
from bridge.engine.group import Group
from bridge.engine.pull_and_prefetch import PullRequest

T = TypeVar("T")


async def result(call: T | Coroutine[Any, Any, T]) -> T:
    """Return the result of a call, for which it waits if it must; and until a message that is pulled is settled."""
    returned: Any = (await call) if isawaitable(call) else call
    if isinstance(returned, Pulled) and returned.settling is not None:
        await returned.settling
        returned = returned._replace(settling=None)
    return cast("T", returned)


async def lease(group: Group, pull_request: PullRequest) -> Entry | None:
    """Return the next entry, for which it waits if none is ready."""
    return group.lease(pull_request) or await group.wait_for_lease(pull_request)
