"""Signatures of webhooks: those that other products send are verified, callbacks are signed.

Pure: headers, body and time are given.

| scheme | header | signed, with HMAC-SHA-256 |
|---|---|---|
| standard-webhooks | `webhook-signature: v1,BASE64 …` | `webhook-id`, `.`, `webhook-timestamp`, `.`, body |
| github | `x-hub-signature-256: sha256=HEX` | body |
| stripe | `stripe-signature: t=SECONDS,v1=HEX,…` | SECONDS, `.`, body |
| slack | `x-slack-signature: v0=HEX` | `v0:`, `x-slack-request-timestamp`, `:`, body |
| hmac | the one of the settings: hexadecimal, perhaps after `sha256=`, or base64 | body |
"""

import base64
import binascii
import hmac
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple, Self
from urllib.parse import quote

from bridge.errors import SignatureInvalid

PREFIX: Final = "whsec_"
SECRET_BYTES: Final = range(24, 65)
""""At least 24 bytes (192 bits, 512 maximum)"."""


def parse_key(text: str, number: int) -> bytes:
    """Return the key of a secret, `whsec_` and the base64 of 24 to 64 bytes. `number`: its place, from 1.

    Raises `ValueError`, whose text shows no secret.
    """
    if not text.startswith(PREFIX):
        raise ValueError(f"secret {number} does not begin with {PREFIX}")
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"secret {number} is not base64 after {PREFIX}") from None
    if len(key) not in SECRET_BYTES:
        raise ValueError(f"secret {number} has {len(key)} bytes, not {SECRET_BYTES[0]} to {SECRET_BYTES[-1]}")
    return key


def signed_before_body(webhook_id: bytes, timestamp: bytes) -> bytes:
    """Return what is signed in front of the body."""
    return b"%b.%b." % (webhook_id, timestamp)


def keyed(key: bytes) -> hmac.HMAC:
    """Return the MAC of a key, to be copied for each message."""
    return hmac.new(key, digestmod="sha256")


Plain = Mapping[bytes, bytes]
"""HTTP headers, by their name in lower case."""

_GITHUB: Final = b"x-hub-signature-256"
_SECONDS_DIGITS: Final = 12
_DIGEST_BYTES: Final = 32
_CHALLENGE_BODY_MAX: Final = 4096
"""Bytes of the largest request that may be a challenge; Slack's have about 150."""
_ID_MAX: Final = 255
"""Bytes of `webhook-id`."""


class _Claim(NamedTuple):
    """What the headers of a request claim."""

    before_body: bytes
    """What is signed in front of the body."""
    digests: Sequence[bytes]
    """The signatures; one of them has to be right, so that a sender can change its secret."""
    seconds: int | None = None
    """When the sender signed, seconds since 1970; None: the scheme does not say."""


class WebhookVerifier(NamedTuple):
    """Verifies the requests to one destination."""

    read: Callable[[Plain, bytes], _Claim]
    header: bytes
    """The header with the signature."""
    keys: Sequence[bytes]
    tolerance: int
    """Largest difference between the sender's time and the bridge's, ms."""

    @classmethod
    def parse(cls, scheme: str, secrets: Sequence[str], tolerance: int, header: str | None = None) -> Self:
        """Build the verifier of a scheme. `header`: for hmac. Raises `ValueError`, which shows no secret."""
        if not secrets:
            raise ValueError("the file has no secret")
        if scheme == "standard-webhooks":
            keys = [parse_key(secret, number) for number, secret in enumerate(secrets, 1)]
        else:
            keys = [secret.encode() for secret in secrets]
        read, name = _SCHEMES[scheme]
        return cls(read, header.encode("ascii") if header else name, keys, tolerance)

    def verify(self, plain: Plain, body: bytes, now: int) -> None:
        """Raise `SignatureInvalid` unless a key has signed the body within the tolerance. `now`: ms since 1970."""
        if self.header not in plain:
            raise SignatureInvalid(f"{self.header.decode()} is required: the signature of the body.")
        claim = self.read(plain, plain[self.header])
        if not any(self._is_signed(key, claim, body) for key in self.keys):
            raise SignatureInvalid(f"{self.header.decode()}: the signature is not that of this body and this secret.")
        if claim.seconds is not None and abs(now - claim.seconds * 1000) > self.tolerance:
            raise SignatureInvalid(
                f"The request was not signed now: its time may differ by at most {self.tolerance} ms from the bridge's."
            )

    def challenge(self, body: bytes) -> str | None:
        """Return what the sender of a verified request wants back to prove who owns its URL; None: it is a message.

        Slack sends such a request once, when the URL is entered: https://docs.slack.dev/reference/events/url_verification
        """
        if self.read is not _read_slack or len(body) > _CHALLENGE_BODY_MAX:
            return None
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            return None
        if not isinstance(request, dict) or request.get("type") != "url_verification":
            return None
        challenge = request.get("challenge")
        return challenge if isinstance(challenge, str) else None

    def _is_signed(self, key: bytes, claim: _Claim, body: bytes) -> bool:
        mac = keyed(key)
        mac.update(claim.before_body)
        mac.update(body)
        digest = mac.digest()
        return any(hmac.compare_digest(digest, claimed) for claimed in claim.digests)


def _read_standard(plain: Plain, signatures: bytes) -> _Claim:
    webhook_id, timestamp = _required(plain, b"webhook-id"), _required(plain, b"webhook-timestamp")
    if b"." in webhook_id:  # a copied request would pass as new: the id `a.TIME`, and its time from the old body
        raise SignatureInvalid("webhook-id: an id with a full stop is not accepted: it could hide an old timestamp.")
    pairs = (signature.partition(b",") for signature in signatures.split(b" "))
    digests = [_base64(text) for version, _, text in pairs if version == b"v1"]
    before_body = signed_before_body(webhook_id, timestamp)
    return _Claim(before_body, digests, _seconds(b"webhook-timestamp", timestamp))


def _read_github(_plain: Plain, signature: bytes) -> _Claim:
    scheme, _, text = signature.partition(b"=")
    return _Claim(b"", [_hex(text)] if scheme == b"sha256" else [])


def _read_stripe(_plain: Plain, signature: bytes) -> _Claim:
    pairs = [part.strip().partition(b"=") for part in signature.split(b",")]
    times = [text for name, _, text in pairs if name == b"t"]
    if len(times) != 1:
        raise SignatureInvalid("stripe-signature must have one time, t=SECONDS.")
    digests = [_hex(text) for name, _, text in pairs if name == b"v1"]
    return _Claim(times[0] + b".", digests, _seconds(b"stripe-signature", times[0]))


def _read_slack(plain: Plain, signature: bytes) -> _Claim:
    name = b"x-slack-request-timestamp"
    timestamp = _required(plain, name)
    version, _, text = signature.partition(b"=")
    return _Claim(b"v0:%b:" % timestamp, [_hex(text)] if version == b"v0" else [], _seconds(name, timestamp))


def _read_hmac(_plain: Plain, signature: bytes) -> _Claim:
    text = signature.strip()
    return _Claim(b"", [_hex(text.removeprefix(b"sha256=")), _base64(text)])


_SCHEMES: Final[Mapping[str, tuple[Callable[[Plain, bytes], _Claim], bytes]]] = {
    "standard-webhooks": (_read_standard, b"webhook-signature"),
    "github": (_read_github, _GITHUB),
    "stripe": (_read_stripe, b"stripe-signature"),
    "slack": (_read_slack, b"x-slack-signature"),
    "hmac": (_read_hmac, b""),
}


def _required(plain: Plain, name: bytes) -> bytes:
    if name not in plain:
        raise SignatureInvalid(f"{name.decode()} is required: it is signed with the body.")
    return plain[name]


def _seconds(name: bytes, text: bytes) -> int:
    if not text.isdigit() or len(text) > _SECONDS_DIGITS:
        raise SignatureInvalid(f"{name.decode()}: the time is not a number of seconds since 1970.")
    return int(text)


def _hex(text: bytes) -> bytes:
    """Return the digest, or nothing for a text that is none."""
    try:
        return bytes.fromhex(text.decode("ascii")) if len(text) == 2 * _DIGEST_BYTES else b""
    except ValueError:
        return b""


def _base64(text: bytes) -> bytes:
    """Return the digest, or nothing for a text that is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


class Signer:
    """Signs callbacks by Standard Webhooks 1.0.0 (https://www.standardwebhooks.com) with every secret, newest first.

    So receivers can change to a new secret at any time. The tests verify with the library `standardwebhooks`. It cannot
    sign here: its `sign` accepts only text bodies.
    """

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
    or at the very least not be allowed to include any `.`". Different ids stay different. An id that has more than 255
    bytes in this form is replaced by its SHA-256 in hex: servers refuse long headers.
    """
    encoded = quote(message_id, safe="", errors="replace").replace(".", "%2E").encode("ascii")
    return encoded if len(encoded) <= _ID_MAX else sha256(encoded).hexdigest().encode("ascii")
