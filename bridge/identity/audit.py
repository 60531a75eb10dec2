"""The audit log: a line for each denial, administrative call, registration and first use of a principal.

It never has a token, a body or a value of a header. `Lines` bounds how many a principal can cause.
"""

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final

from bridge.identity.principals import Identity
from bridge.identity.refusals import Reason

LINES: Final = 10
"""Lines in a second for each principal, or for each address without one."""
LINES_OF_ALL: Final = 200
"""Lines in a second."""
_KNOWN_MAX: Final = 10_000
"""Principals that are remembered as seen."""

_log = logging.getLogger("bridge.audit")
_log.setLevel(logging.INFO)  # whatever log.level says


class Audit:
    """Writes the audit log, and counts denials. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.denials: Counter[str] = Counter()
        """By reason."""
        self._clock = clock
        self._second = 0
        self._written: Counter[str] = Counter()
        self._suppressed = 0
        self._known: OrderedDict[str, None] = OrderedDict()

    def denied(self, reason: Reason, client: str, principal: str | None, what: str) -> None:
        """Count and log a denial. `what`: the operation and resource, or why a token was refused."""
        self.denials[reason] += 1
        who = {} if principal is None else {"principal": principal}
        self._write(principal or client, "denied", {"reason": reason.value, "what": what, "client": client, **who})

    def did(self, event: str, client: str, principal: str, what: str) -> None:
        """Log an administrative call or a registration."""
        _log.info(event, extra={"what": what, "principal": principal, "client": client})

    def used(self, identity: Identity, client: str) -> None:
        """Log the first use of a principal since the start."""
        if identity.principal in self._known:
            return
        self._known[identity.principal] = None
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        extra: dict[str, object] = {
            "principal": identity.principal,
            "groups": ",".join(identity.groups),
            "client": client,
        }
        self._write(client, "first use", extra)

    def _write(self, key: str, event: str, extra: dict[str, object]) -> None:
        if (second := int(self._clock())) != self._second:
            self._second = second
            self._written.clear()
        if self._written[key] >= LINES or self._written.total() >= LINES_OF_ALL:
            self._suppressed += 1
            return
        self._written[key] += 1
        if self._suppressed:
            extra["suppressed"], self._suppressed = self._suppressed, 0
        _log.info(event, extra=extra)
