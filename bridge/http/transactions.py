"""`x-oms-transaction` of a produce, and `/v1/transactions`: commit, roll back, look up and list transactions."""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from adapters.base import Transaction
from bridge.callbacks.registry import mask_query
from bridge.engine.batch import Produced
from bridge.engine.transactions import TransactionRequest, Transactions
from bridge.errors import BodyInvalid, BridgeError, HeaderInvalid
from bridge.http.params import parse_params, positive, transaction_of
from bridge.http.request_reply import TRANSACTION_TIMEOUT, TRANSACTION_TIMEOUT_MAX, Reply, Request, json_reply
from bridge.message import Field, Message
from bridge.wire.header_text import printable
from bridge.wire.headers import Headers

_MODES: Final = {"prepare": False, "commit": True}


class TransactionPublisher:
    """Produces as the engine does, for the messages of one request that belong to a transaction."""

    def __init__(self, transactions: Transactions, headers: Headers) -> None:
        """Raises `HeaderInvalid` for a mode, a timeout or a URL that is not allowed."""
        parameters = headers.parameters
        mode = parameters["transaction"]
        if mode not in _MODES:
            raise HeaderInvalid(f"x-oms-transaction is prepare or commit, not {printable(mode.encode())}.")
        timeout = positive(parameters, "transaction-timeout", TRANSACTION_TIMEOUT, TRANSACTION_TIMEOUT_MAX)
        self._request = TransactionRequest(
            headers.fields.get("transaction_id"), _MODES[mode], timeout, parameters.get("transaction-check")
        )
        self._transactions = transactions

    def produce(
        self, message: Message, require: Sequence[Field], peer: str, key: str | None
    ) -> Produced | Awaitable[Produced]:
        """Prepare one message; see `Transactions.produce`."""
        return self._transactions.produce(self._request, message, require, peer, key)

    def produce_all(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str, key: str | None
    ) -> Awaitable[list[Produced | BridgeError]]:
        """Prepare a batch; see `Transactions.produce_all`."""
        return self._transactions.produce_all(self._request, messages, require, peer, key)


class TransactionEndpoints:
    """The endpoints below `/v1/transactions`."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def commit(self, request: Request) -> Reply:
        """Commit a transaction."""
        return await self._end(request, self._transactions.commit)

    async def rollback(self, request: Request) -> Reply:
        """Roll a transaction back."""
        return await self._end(request, self._transactions.rollback)

    async def find(self, request: Request) -> Reply:
        """Describe a transaction."""
        parse_params(request.headers.parameters, request.query)
        return _reply(describe(self._transactions.get(transaction_of(request.path))))

    async def listing(self, request: Request) -> Reply:
        """List the open transactions, the oldest first."""
        parse_params(request.headers.parameters, request.query)
        return _reply([describe(each) for each in self._transactions.all_open()])

    @staticmethod
    async def _end(request: Request, end: Callable[[str], Awaitable[Transaction]]) -> Reply:
        parse_params(request.headers.parameters, request.query)
        if request.body:
            raise BodyInvalid("The end of a transaction consists of the path only: send no body.")
        return _reply(describe(await end(transaction_of(request.path))))


def describe(transaction: Transaction) -> dict[str, object]:
    """Return the document of a transaction; the query of its URL may contain a token, and is not shown."""
    document: dict[str, object] = {
        "transactionId": transaction.id,
        "state": transaction.state.value,
        "began": transaction.began,
        "timeoutMills": transaction.timeout,
        "messages": transaction.messages,
        "bytes": transaction.size,
    }
    return document if transaction.check is None else {**document, "check": mask_query(transaction.check)}


def _reply(document: object) -> Reply:
    return json_reply(200, json.dumps(document).encode())
