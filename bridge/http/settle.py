"""`/v1/ack`, `/v1/nack`, `/v1/extend`: end a lease, give it back, keep it longer."""

from collections.abc import Mapping

from bridge.engine.engine import Engine, GroupName
from bridge.errors import HeaderMissing
from bridge.http.asked import read_asked
from bridge.http.exchange import Reply, Request
from bridge.http.limits import NACK_DELAY_MAX, Limits
from bridge.wire import parameters
from bridge.wire.headers import VERSION


class Settle:
    """The endpoints of the three paths."""

    def __init__(self, engine: Engine, limits: Limits) -> None:
        self._engine = engine
        self._limits = limits

    async def ack(self, request: Request) -> Reply:
        """Settle for good. Acknowledging twice is 204."""
        asked, receipts = _read(request)
        await self._engine.ack(receipts, _named(asked))
        return _done()

    async def nack(self, request: Request) -> Reply:
        """Give back; ready again after `x-oms-delaymills`."""
        asked, receipts = _read(request)
        self._engine.nack(receipts, parameters.number(asked, "delaymills", 0, NACK_DELAY_MAX), _named(asked))
        return _done()

    async def extend(self, request: Request) -> Reply:
        """Let the leases last `x-oms-leasemills` from now."""
        asked, receipts = _read(request)
        self._engine.extend(receipts, self._limits.lease_of(asked), _named(asked))
        return _done()


def _read(request: Request) -> tuple[Mapping[str, str], list[str]]:
    asked = read_asked(request)
    receipts = parameters.receipts(asked)
    if not receipts:
        raise HeaderMissing("x-oms-receipt is required: what the pull returned, several separated by commas.")
    return asked, receipts


def _named(asked: Mapping[str, str]) -> GroupName | None:
    """Return the group that the client names beside its receipts; naming one half needs the other."""
    if "source" not in asked and "consumerid" not in asked:
        return None
    return GroupName.checked(
        parameters.text(asked, "source", "it goes with x-oms-consumerid"),
        parameters.text(asked, "consumerid", "it goes with x-oms-source"),
    )


def _done() -> Reply:
    return Reply(204, [(b"x-oms-version", VERSION)])
