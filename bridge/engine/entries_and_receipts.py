"""A delivery in the prefetch buffer: its lease, its receipt, who may extend it; and how leases ended."""

import hashlib
import secrets
from typing import Any, Final, NamedTuple, Protocol

from adapters.base import Delivery
from bridge.errors import LeaseEnded, ReceiptInvalid
from bridge.message import DEFAULT_PRIORITY, FIELD_INDEX, PRIORITIES, Message

_DELIVERY_COUNT: Final = FIELD_INDEX["delivery_count"]

QueueKey = tuple[int, str]
"""Partition and messageKey: messages with the same one are delivered one after the other."""


_NO_MESSAGE: Final = Message("")


class LeaseOwner(Protocol):
    """A push stream or a callback: extends its leases until it is closed."""

    renewal: int
    """Milliseconds by which a lease is extended when it would end; 0: it ends."""

    def ended(self, entry: "Entry") -> None:
        """Note that a lease is over, however it ended. Must not call the buffer, which is in the middle of a change."""
        ...


class Entry:
    """One delivery inside the prefetch buffer."""

    __slots__ = (
        *("attempts", "deadline", "delivery", "expires", "holders", "owner"),
        *("queue_key", "number", "order", "parked", "priority", "settling", "size"),
    )

    def __init__(self, delivery: Delivery, order: int) -> None:
        message = delivery.message
        self.delivery = delivery
        self.order = order
        """Counts the entries of the buffer in the order in which they were fetched."""
        priority = message.priority
        self.priority = priority if priority is not None and priority in PRIORITIES else DEFAULT_PRIORITY
        self.queue_key: QueueKey | None = (
            None if message.message_key is None else (delivery.partition, message.message_key)
        )
        self.size = message.size
        """Bytes that the message counts in limits."""
        self.expires = message.expires
        self.attempts = delivery.attempts
        """Deliveries so far: the value of `deliveryCount` while the entry is leased."""
        self.number = -1
        """Number of the lease, or of the pause, within the group."""
        self.deadline = 0
        """End of the lease or the pause, monotonic ms."""
        self.holders = 0
        """Responses that carry this lease: more than one after a pull was repeated."""
        self.owner: LeaseOwner | None = None
        self.settling = False
        """The backend is recording the acknowledgement: the lease cannot end meanwhile."""
        self.parked = False
        """Whether its message was dropped to save memory: it is fetched again before the entry is ready."""

    def park(self) -> None:
        """Drop the message; only its place is kept."""
        self.parked = True
        self.delivery = self.delivery._replace(message=_NO_MESSAGE)

    def restore(self, message: Message) -> None:
        """Take the message that was dropped."""
        self.parked = False
        self.delivery = self.delivery._replace(message=message)

    @property
    def message(self) -> Message:
        """The message as a consumer gets it."""
        fields: list[Any] = list(self.delivery.message)
        fields[_DELIVERY_COUNT] = self.attempts
        return tuple.__new__(Message, fields)


_LIVE: Final = 0
_SETTLED: Final = 1
_ENDED: Final = 2
_OUTCOMES_KEPT: Final = 1 << 17
"""Leases whose outcome is remembered, one byte each: acknowledging twice is 204, a lease that ended is 410."""


class LeaseHistory:
    """Numbers the leases of one group and remembers how the last 65,536 to 131,072 of them ended."""

    def __init__(self) -> None:
        self._outcomes = bytearray()
        self._first = 0
        """Number of the lease that the first byte belongs to."""

    def __len__(self) -> int:
        return len(self._outcomes)

    def add_leases(self, count: int) -> int:
        """Return the number of the first of `count` new leases; the others have the numbers after it."""
        return self._add(_LIVE, count)

    def add_pause(self) -> int:
        """Return a number for a redelivery pause; a client sees it as a lease that has ended."""
        return self._add(_ENDED, 1)

    def settle(self, number: int) -> bool:
        """Record that the backend has settled a lease; False if that was recorded before, or is too long ago."""
        index = number - self._first
        if not 0 <= index < len(self._outcomes) or self._outcomes[index] == _SETTLED:
            return False
        self._outcomes[index] = _SETTLED
        return True

    def end(self, number: int) -> None:
        """Record that a lease ended without being settled."""
        index = number - self._first
        if index >= 0:
            self._outcomes[index] = _ENDED

    def is_settled(self, number: int) -> bool:
        """Return whether a lease was settled; False if that is too long ago."""
        index = number - self._first
        return 0 <= index < len(self._outcomes) and self._outcomes[index] == _SETTLED

    def _add(self, outcome: int, count: int) -> int:
        outcomes = self._outcomes
        if len(outcomes) + count > _OUTCOMES_KEPT:
            half = _OUTCOMES_KEPT // 2
            del outcomes[:half]
            self._first += half
        first = self._first + len(outcomes)
        outcomes += bytes((outcome,)) * count
        return first


_RECEIPT_PARTS: Final = 4
_KEY_BYTES: Final = 16
_MAC_BYTES: Final = 8


class Receipt(NamedTuple):
    """Names a lease for the client: the numbers of its group and of the lease."""

    group: int
    lease: int


class ReceiptSigner:
    """Writes and reads the receipts of one process: `epoch-group-lease-mac` in hex, safe in a header.

    The mac prevents a client from acknowledging another's messages by guessing numbers. The epoch identifies the
    process: leases of an earlier one have ended with it.
    """

    def __init__(self) -> None:
        # copied for each mac: to set the key again takes twice as long
        self._keyed = hashlib.blake2b(key=secrets.token_bytes(_KEY_BYTES), digest_size=_MAC_BYTES)
        self._epoch = secrets.token_hex(4)

    def write(self, receipt: Receipt) -> str:
        """Return the receipt's text."""
        body = f"{self._epoch}-{receipt.group:x}-{receipt.lease:x}"
        return f"{body}-{self._mac(body)}"

    def read(self, text: str) -> Receipt:
        """Return the receipt of a text. Raises `ReceiptInvalid`; `LeaseEnded` if an earlier process wrote it."""
        parts = text.split("-")
        if len(parts) != _RECEIPT_PARTS or not text.isascii():
            raise ReceiptInvalid("x-oms-receipt: this is not a receipt of this bridge.")
        epoch, group, lease, mac = parts
        if epoch != self._epoch:
            raise LeaseEnded("x-oms-receipt: the lease ended when the bridge restarted.")
        if not secrets.compare_digest(mac, self._mac(text[: -len(mac) - 1])):
            raise ReceiptInvalid("x-oms-receipt: this is not a receipt of this bridge.")
        return Receipt(int(group, 16), int(lease, 16))

    def _mac(self, body: str) -> str:
        mac = self._keyed.copy()
        mac.update(body.encode("ascii"))
        return mac.hexdigest()
