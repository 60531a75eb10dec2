"""What the engine tells of its messages: tracing makes spans of it. Without tracing there is no observer."""

from collections.abc import Callable
from typing import Literal, Protocol

from bridge.engine.batch import Publish
from bridge.engine.destination_names import SubscriptionKey
from bridge.message import Message

End = Callable[[BaseException | None], None]
"""To be called when the operation has ended, with why it failed."""


class TransactionObserver(Protocol):
    """Observes transactions."""

    def preparing(self, name: str, message: Message) -> tuple[Message, End]:
        """A message is prepared in a transaction. Returns the message to prepare, perhaps with a trace context."""
        ...

    def ending(self, how: Literal["commit", "rollback"], name: str, messages: int | None) -> End:
        """A transaction ends. `messages`: how many the backend has; None: it does not know the transaction."""
        ...

    def forget(self, name: str) -> None:
        """Forget a transaction that has ended."""


class Observer(Protocol):
    """Observes messages."""

    transactions: TransactionObserver

    def publishing(self, publish: Publish) -> Publish:
        """Return the first step of a produce: it may give messages a trace context, and sees their results."""
        ...

    def delivered(self, how: Literal["pull", "push"], key: SubscriptionKey, message: Message, begun: int) -> None:
        """A message was delivered. `begun`: since when it was waited for, ms since 1970."""

    def settling(self, how: Literal["ack", "nack"], key: SubscriptionKey, message: Message) -> End:
        """A leased message is settled, or returned."""
        ...
