"""Signatures as Standard Webhooks 1.0.0 asks: https://www.standardwebhooks.com.

The library `standardwebhooks` verifies this in tests. It cannot make it: its `sign` takes the body as text.
"""

import base64
import binascii
import hmac
from collections.abc import Iterable
from typing import Final, Self
from urllib.parse import quote

PREFIX: Final = "whsec_"
SECRET_BYTES: Final = range(24, 65)
""""At least 24 bytes (192 bits, 512 maximum)"."""


class Signer:
    """Signs with every secret, so that receivers can move from one to the next; the first is the newest."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keyed = [hmac.new(key, digestmod="sha256") for key in keys]

    @classmethod
    def parse(cls, secrets: Iterable[str]) -> Self:
        """Read secrets, `whsec_` and the base64 of 24 to 64 bytes. Raises `ValueError`, which never shows one."""
        return cls([_key(text, number) for number, text in enumerate(secrets, 1)])

    def headers(self, message_id: str, seconds: int, body: bytes) -> list[tuple[bytes, bytes]]:
        """Return webhook-id, -timestamp and -signature for one attempt at `seconds` since 1970.

        The id is the same at each attempt; `webhook_id` says how it is spelled. The header is signed as it is sent.
        """
        sent_id, timestamp = webhook_id(message_id), b"%d" % seconds
        signatures = []
        for keyed in self._keyed:
            mac = keyed.copy()
            mac.update(b"%b.%b." % (sent_id, timestamp))
            mac.update(body)
            signatures.append(b"v1," + base64.b64encode(mac.digest()))
        return [
            (b"webhook-id", sent_id),
            (b"webhook-timestamp", timestamp),
            (b"webhook-signature", b" ".join(signatures)),
        ]


def webhook_id(message_id: str) -> bytes:
    """A messageId as a header can carry it: every character outside `A-Z a-z 0-9 _ ~ -` as `%XX` of its UTF-8 bytes.

    A full stop too: "It's important that both the message id and the timestamp not be user controlled, or at the very
    least not be allowed to include any `.`". Different ids stay different.
    """
    return quote(message_id, safe="", errors="replace").replace(".", "%2E").encode("ascii")


def _key(text: str, number: int) -> bytes:
    if not text.startswith(PREFIX):
        raise ValueError(f"secret {number} does not begin with {PREFIX}")
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"secret {number} is not base64 after {PREFIX}") from None
    if len(key) not in SECRET_BYTES:
        raise ValueError(f"secret {number} has {len(key)} bytes, not {SECRET_BYTES[0]} to {SECRET_BYTES[-1]}")
    return key
