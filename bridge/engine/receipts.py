"""Receipts: what a consumer holds while a lease is his, and hands back to settle it."""

import hashlib
import secrets
from typing import Final, NamedTuple

from bridge.errors import LeaseEnded, ReceiptInvalid

_PARTS: Final = 4
_KEY_BYTES: Final = 16
_MAC_BYTES: Final = 8


class Receipt(NamedTuple):
    """Which lease of which group a receipt stands for."""

    group: int
    lease: int


class ReceiptBook:
    """Writes and reads the receipts of one process: `epoch-group-lease-mac` in hex, safe in a header.

    The mac keeps one client from acknowledging another's messages by counting; the epoch tells the receipts of
    an earlier process, whose leases have ended with it.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._epoch = secrets.token_hex(4)

    def write(self, receipt: Receipt) -> str:
        """Return the receipt's text."""
        body = f"{self._epoch}-{receipt.group:x}-{receipt.lease:x}"
        return f"{body}-{self._mac(body)}"

    def read(self, text: str) -> Receipt:
        """Read it back. Raises `ReceiptInvalid` when forged, `LeaseEnded` when from an earlier process."""
        parts = text.split("-")
        if len(parts) != _PARTS or not text.isascii():
            raise ReceiptInvalid("x-oms-receipt: this is not a receipt of this bridge.")
        epoch, group, lease, mac = parts
        if epoch != self._epoch:
            raise LeaseEnded("x-oms-receipt: the lease ended when the bridge restarted.")
        if not secrets.compare_digest(mac, self._mac(text[: -len(mac) - 1])):
            raise ReceiptInvalid("x-oms-receipt: this is not a receipt of this bridge.")
        return Receipt(int(group, 16), int(lease, 16))

    def _mac(self, body: str) -> str:
        return hashlib.blake2b(body.encode("ascii"), key=self._key, digest_size=_MAC_BYTES).hexdigest()
