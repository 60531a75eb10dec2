"""A small asynchronous client: messages in, messages out, errors as the tree of `bridge.errors`.

It never retries: only the caller knows whether a message may be stored twice. Two promises hold whatever happens:
a `Rejected` or `NotStored` means that nothing was stored, an `OutcomeUnknown` that it may or may not have been.
"""

from bridge.client.answers import Delivery, Receipt
from bridge.client.client import Client
from bridge.client.connection import ANSWER_SECONDS, CONNECT_SECONDS

__all__ = ["ANSWER_SECONDS", "CONNECT_SECONDS", "Client", "Delivery", "Receipt"]
