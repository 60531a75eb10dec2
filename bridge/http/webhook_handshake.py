"""The handshake of CloudEvents webhooks: a sender asks by OPTIONS whether it may post to the URL of a destination.

Specification: "HTTP 1.1 Web Hooks for Event Delivery" 1.0.1, chapter 4, of https://github.com/cloudevents/spec. Azure
Event Grid asks so before its first event. The permission is in the response, so `WebHook-Request-Callback`, a URL for a
later one, is not needed.
"""

import re
from collections.abc import Mapping
from typing import Final

from bridge.engine.destination_names import check_name
from bridge.errors import HeaderInvalid
from bridge.http.incoming_webhook_rules import Rules, check_unsigned
from bridge.http.params import DESTINATION_MESSAGES, path_values, template_of
from bridge.http.request_and_reply import Pair
from bridge.wire.header_text import printable

ORIGIN: Final = b"webhook-request-origin"
"""The header that makes an OPTIONS request a handshake."""

_ORIGIN: Final = re.compile(rb"[A-Za-z0-9._-]{1,253}(?::[0-9]{1,5})?")
_SECONDS: Final = 60


class WebhookHandshake:
    """Allows every sender that may post anyway: to destinations that take unsigned requests.

    `quota`: messages per second and destination; None: no limit.
    """

    def __init__(self, rules: Rules, quota: int | None) -> None:
        self._rules = rules
        self._rate = b"*" if quota is None else b"%d" % (quota * _SECONDS)

    def answer(self, path: str, headers: Mapping[bytes, bytes]) -> list[Pair] | None:
        """Return the headers that allow the sender to post; None: the OPTIONS request is no handshake.

        Raises `HeaderInvalid`, `DestinationInvalid`, and `SignatureInvalid` for a destination with `verify`, to which
        no sender that asks so can post.
        """
        origin = headers.get(ORIGIN)
        if origin is None or template_of(path) != DESTINATION_MESSAGES:
            return None
        if _ORIGIN.fullmatch(origin) is None:
            raise HeaderInvalid(f"{ORIGIN.decode()}: {printable(origin)} is not the name of a host.")
        check_unsigned(self._rules, check_name(path_values(path).destination, "destination"))
        return [(b"webhook-allowed-origin", origin), (b"webhook-allowed-rate", self._rate), (b"allow", b"POST")]
