"""One delivery of one message: in the produce form, signed, POSTed."""

from uuid_utils import uuid7

from bridge.callbacks.answer import Answer
from bridge.callbacks.egress import Egress
from bridge.callbacks.signing import Signer
from bridge.engine.clock import Clock
from bridge.message import Message
from bridge.wire.compression import unpacked
from bridge.wire.headers import encode


class Dispatch:
    """Knows how a delivery looks; `largest` bounds what a body may inflate to, bytes."""

    def __init__(self, egress: Egress, signer: Signer, clock: Clock, largest: int) -> None:
        self._egress = egress
        self._signer = signer
        self._clock = clock
        self._largest = largest

    async def __call__(self, url: str, message: Message) -> Answer:
        """Deliver once. Raises `Refused` and `Unreachable`."""
        message = unpacked(message, self._largest)
        headers = encode(message)
        # The adapter's duty. Where it fails a message seen twice is better than two taken for one and the same, which
        # an empty id would bring, and one made of the content too.
        message_id = message.message_id or str(uuid7())
        headers += self._signer.headers(message_id, self._clock.wall() // 1000, message.body)
        return await self._egress.post(url, headers, message.body)
