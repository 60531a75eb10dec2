"""A small asynchronous client: messages in, messages out, errors as the tree of `bridge.errors`.

It never repeats a produce: only the caller knows whether a message may be stored twice. Two promises hold whatever
happens: a `Rejected` or `NotStored` means that nothing was stored, an `OutcomeUnknown` that it may or may not have
been.

`Client.push` receives messages as they come. A program that pulls with `wait_ms` should have a `Client` for that
alone: httpx holds back the other answers of a connection on which a pull waits. A push has a connection of its own.
"""

from bridge.client.answers import Delivery, Receipt
from bridge.client.client import Client
from bridge.client.connection import ANSWER_SECONDS, CONNECT_SECONDS
from bridge.client.messages import Messages

__all__ = ["ANSWER_SECONDS", "CONNECT_SECONDS", "Client", "Delivery", "Messages", "Receipt"]
