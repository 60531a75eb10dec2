"""`x-oms-transaction` of a produce, and `/v1/transactions`: commit, roll back, look up and list transactions."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from adapters.base import Transaction, TransactionState
from bridge.callbacks.registry import mask_query
from bridge.engine.open_transactions import TransactionRequest
from bridge.engine.produced import Produced
from bridge.engine.transactions import Transactions
from bridge.errors import OWNER_END, BodyInvalid, BridgeError, HeaderInvalid, visible_id
from bridge.http.params import parse_params, positive, transaction_of
from bridge.http.request_and_reply import (
    TRANSACTION_TIMEOUT,
    TRANSACTION_TIMEOUT_MAX,
    Reply,
    Request,
    json_reply,
    quoted,
)
from bridge.identity.caller import Caller
from bridge.identity.rules import Operation
from bridge.message import Field, Message
from bridge.wire.header_text import printable
from bridge.wire.headers import Headers

_MODES: Final = {"prepare": False, "commit": True}


class TransactionPublisher:
    """Produces as the engine does, for the messages of one request that belong to a transaction."""

    def __init__(self, transactions: Transactions, headers: Headers, caller: Caller | None = None) -> None:
        """Each caller has its own transactions.

        Raises `HeaderInvalid` for a mode, a timeout or a URL that is not allowed.
        """
        parameters = headers.parameters
        mode = parameters["transaction"]
        if mode not in _MODES:
            raise HeaderInvalid(f"x-oms-transaction is prepare or commit, not {printable(mode.encode())}.")
        timeout = positive(parameters, "transaction-timeout", TRANSACTION_TIMEOUT, TRANSACTION_TIMEOUT_MAX)
        self._request = TransactionRequest(
            headers.fields.get("transaction_id"),
            _MODES[mode],
            timeout,
            parameters.get("transaction-check"),
            owner_of(caller),
        )
        self._transactions = transactions

    async def produce(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str, key: str | None
    ) -> list[Produced | BridgeError]:
        """Prepare messages; see `Transactions.produce`."""
        return await self._transactions.produce(self._request, messages, require, peer, key)


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
        parse_params(request.headers.parameters, request.query, request.route)
        return _reply(describe(self._transactions.get(_name(request))))

    async def listing(self, request: Request) -> Reply:
        """List the open transactions, the oldest first."""
        parse_params(request.headers.parameters, request.query, request.route)
        if request.caller is not None:
            request.caller.check_somewhere(Operation.TRANSACT)
        owner = owner_of(request.caller)
        return _reply(describe_all(each for each in self._transactions.all_open() if each.id.startswith(owner)))

    @staticmethod
    async def _end(request: Request, end: Callable[[str], Awaitable[Transaction]]) -> Reply:
        parse_params(request.headers.parameters, request.query, request.route)
        if request.body:
            raise BodyInvalid("The end of a transaction consists of the path only: send no body.")
        return _reply(describe(await end(_name(request))))


def owner_of(caller: Caller | None) -> str:
    """Return the beginning of the names of a caller's transactions; empty if the bridge has no identities."""
    return "" if caller is None else f"{caller.identity.principal}{OWNER_END}"


def _name(request: Request) -> str:
    """Return the name of the transaction in the path: one of the caller, whatever the path says."""
    if request.caller is not None:
        request.caller.check_somewhere(Operation.TRANSACT)
    return owner_of(request.caller) + transaction_of(request.path)


def describe(transaction: Transaction) -> str:
    """Return the JSON document of a transaction. The query of its URL may contain a token, and is not shown."""
    name, state, began, timeout, check, messages, size = transaction
    if state is not TransactionState.OPEN:  # not all backends remember more
        check, messages, size = None, 0, 0
    of_check = "" if check is None else f', "check": {quoted(mask_query(check))}'
    return (
        f'{{"transactionId": {quoted(visible_id(name))}, "state": "{state.value}", "began": {began},'
        f' "timeoutMills": {timeout}, "messages": {messages}, "bytes": {size}{of_check}}}'
    )


def describe_all(transactions: Iterable[Transaction]) -> str:
    """Return the JSON document of transactions."""
    return f"[{', '.join(map(describe, transactions))}]"


def _reply(document: str) -> Reply:
    return json_reply(200, document.encode("ascii"))
