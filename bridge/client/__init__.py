"""The asynchronous Python client: produce, pull and push, with the errors of `bridge.errors`.

It never repeats a produce: the caller decides whether a message may be stored twice. `Rejected` and `NotStored` mean
that nothing was stored, `OutcomeUnknown` that the message may or may not have been stored.

`Client.push` receives messages as they come.
"""

from bridge.client.batches_and_transactions import ClientTransaction
from bridge.client.client import Client
from bridge.client.push_and_ack import Receiver
from bridge.client.request_sender import RESPONSE_SECONDS
from bridge.client.transport import CONNECT_SECONDS, ProduceResult, ReceivedMessage

__all__ = [
    "CONNECT_SECONDS",
    "RESPONSE_SECONDS",
    "Client",
    "ClientTransaction",
    "ProduceResult",
    "ReceivedMessage",
    "Receiver",
]
