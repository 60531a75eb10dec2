"""Signatures of callbacks by Standard Webhooks 1.0.0: https://www.standardwebhooks.com.

The tests verify them with the library `standardwebhooks`. It cannot sign here: its `sign` accepts only text bodies.
"""

import base64
from collections.abc import Iterable
from typing import Self
from urllib.parse import quote

from bridge.wire.webhook_signatures import keyed, parse_key, signed_before_body


class Signer:
    """Signs with every secret, newest first, so that receivers can change to a new secret at any time."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._macs = [keyed(key) for key in keys]

    @classmethod
    def parse(cls, secrets: Iterable[str]) -> Self:
        """Parse secrets: `whsec_` and the base64 of 24 to 64 bytes. Raises `ValueError`, whose text shows no secret."""
        return cls([parse_key(text, number) for number, text in enumerate(secrets, 1)])

    def headers(self, message_id: str, seconds: int, body: bytes) -> list[tuple[bytes, bytes]]:
        """Return webhook-id, -timestamp and -signature of one attempt at `seconds` since 1970.

        The signature covers the id in its encoded form (`webhook_id`), which is the same at each attempt.
        """
        encoded_id, timestamp = webhook_id(message_id), b"%d" % seconds
        signatures = []
        for keyed_mac in self._macs:
            mac = keyed_mac.copy()
            mac.update(signed_before_body(encoded_id, timestamp))
            mac.update(body)
            signatures.append(b"v1," + base64.b64encode(mac.digest()))
        return [
            (b"webhook-id", encoded_id),
            (b"webhook-timestamp", timestamp),
            (b"webhook-signature", b" ".join(signatures)),
        ]


def webhook_id(message_id: str) -> bytes:
    """Encode a messageId for a header: every character outside `A-Z a-z 0-9 _ ~ -` as `%XX` of its UTF-8 bytes.

    Full stops are encoded as well: "It's important that both the message id and the timestamp not be user controlled,
    or at the very least not be allowed to include any `.`". Different ids stay different.
    """
    return quote(message_id, safe="", errors="replace").replace(".", "%2E").encode("ascii")
