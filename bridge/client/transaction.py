"""A transaction of the client: prepares messages, and commits or rolls back when its block ends."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, Self

from uuid_utils import uuid7

from bridge.errors import BridgeError
from bridge.message import Message

Prepare = Callable[[Message, dict[str, str]], Awaitable[str]]
End = Callable[[str, Literal["commit", "rollback"]], Awaitable[dict[str, Any]]]

TIMEOUT_MS: Final = 60_000

_log = logging.getLogger("bridge.client")


class ClientTransaction:
    """The messages that are committed when the block is left, or rolled back when an exception leaves it."""

    def __init__(
        self, prepare: Prepare, end: End, transaction_id: str | None, timeout_ms: int, check: str | None
    ) -> None:
        self.id = transaction_id or str(uuid7())
        """Known from the start, so that the program can write it into its database."""
        self._prepare = prepare
        self._end = end
        self._parameters = {"transaction": "prepare", "transaction-timeout": str(timeout_ms)}
        if check is not None:
            self._parameters["transaction-check"] = check
        self._began = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._began:
            return
        if kind is None:
            await self._end(self.id, "commit")
            return
        try:
            await self._end(self.id, "rollback")
        except BridgeError as error:  # the exception of the block is raised; the bridge ends the transaction later
            _log.warning("the transaction %s could not be rolled back: %s", self.id, error.detail)

    async def produce(self, message: Message) -> str:
        """Prepare one message; return its messageId. Raises any of `bridge.errors`."""
        self._began = True
        return await self._prepare(message._replace(transaction_id=self.id), self._parameters)
