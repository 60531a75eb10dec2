"""Asks the producer of an open transaction whether to commit it: a signed POST under the rules of callbacks."""

import json
import logging
from http import HTTPStatus
from typing import Final

from uuid_utils import uuid7

from adapters.base import Transaction
from bridge.callbacks.egress import Egress
from bridge.callbacks.retry import EndpointResponse, RequestFailed
from bridge.callbacks.signing import Signer
from bridge.engine.clock import Clock
from bridge.engine.transaction_deadlines import Decision
from bridge.wire.headers import VERSION

_MEMBER: Final = "decision"
"""The member of the answer that says whether to commit."""

_log = logging.getLogger("bridge.callbacks")


class TransactionCheck:
    """Sends the question and reads the answer."""

    def __init__(self, egress: Egress, signer: Signer, clock: Clock) -> None:
        self._egress = egress
        self._signer = signer
        self._clock = clock

    async def __call__(self, transaction: Transaction) -> Decision:
        """Return the producer's decision; `UNKNOWN` if it has not answered with one."""
        document = {
            "transactionId": transaction.id,
            "began": transaction.began,
            "messages": transaction.messages,
        }
        body = json.dumps(document).encode()
        headers = [(b"x-oms-version", VERSION), (b"content-type", b"application/json")]
        headers += self._signer.headers(str(uuid7()), self._clock.wall() // 1000, body)
        try:
            decision = read_decision(await self._egress.post(transaction.check or "", headers, body))
        except RequestFailed as error:
            _log.warning(
                "the check of a transaction failed", extra={"transaction": transaction.id, "reason": str(error)}
            )
            return Decision.UNKNOWN
        _log.info("a transaction was checked", extra={"transaction": transaction.id, "decision": decision.value})
        return decision


def read_decision(response: EndpointResponse) -> Decision:
    """Return the decision of an answer `{"decision": "commit"}` with status 200; `UNKNOWN` for any other answer."""
    if response.status != HTTPStatus.OK or response.json is None:
        return Decision.UNKNOWN
    try:
        return Decision(json.loads(response.json)[_MEMBER])
    except (ValueError, LookupError, TypeError, RecursionError):
        return Decision.UNKNOWN
