"""Rules for webhooks to a destination: which HTTP headers become properties, and which requests must be signed."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from bridge.engine.destination_names import check_name
from bridge.errors import DestinationInvalid, HeaderRepeated, SignatureInvalid
from bridge.signatures import WebhookVerifier
from bridge.wire.headers import Headers


class Signing(NamedTuple):
    """How the requests to a destination are signed."""

    scheme: str
    """standard-webhooks, github, stripe, slack or hmac."""
    secrets: Sequence[str]
    tolerance: int
    """Largest difference between the sender's time and the bridge's, ms."""
    header: str | None = None
    """The header with the signature, for hmac."""


class DestinationRules(NamedTuple):
    """The rules of one destination."""

    properties: tuple[str, ...] = ()
    """HTTP headers that become properties, in lower case."""
    verifier: WebhookVerifier | None = None
    """Verifies the signature of each request; None: no request is signed."""

    @classmethod
    def create(cls, name: str, properties: Sequence[str], signing: Signing | None) -> Self:
        """Build the rules of the destination `name`. Raises `ValueError`, which shows no secret."""
        try:
            check_name(name, "the name")
        except DestinationInvalid as error:
            raise ValueError(error.detail.removesuffix(".")) from None
        return cls(tuple(properties), None if signing is None else WebhookVerifier.parse(*signing))

    def apply(self, headers: Headers, body: bytes, now: int) -> Headers:
        """Return the headers with their properties. `now`: ms since 1970.

        Raises `SignatureInvalid`; `HeaderRepeated` if an `x-oms-p-` header gives a property another value.
        """
        if self.verifier is not None:
            self.verifier.verify(headers.plain, body, now)
        properties = dict(headers.properties)
        for name in self.properties:
            raw = headers.plain.get(name.encode("ascii"))
            if raw is None:
                continue
            value = _decode(raw)
            if properties.setdefault(name, value) != value:
                raise HeaderRepeated(f"x-oms-p-{name} and {name} are both given, with different values.")
        return headers._replace(properties=properties)


def _decode(raw: bytes) -> str:
    """Return the text of a header that senders write without escapes: UTF-8 if it can be, else ISO 8859-1."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


Rules = Mapping[str, DestinationRules]
"""The rules by the name of the destination."""


def check_unsigned(rules: Rules, destination: str) -> None:
    """Raise `SignatureInvalid` if the destination only takes signed requests, which a produce with headers is not."""
    rule = rules.get(destination)
    if rule is not None and rule.verifier is not None:
        raise SignatureInvalid(
            f"{destination} takes only signed requests, to /v1/destinations/{destination}/messages: see `verify` in the"
            " settings of the bridge."
        )
