"""Ends transactions that their producers left open: asks the producer, then commits or rolls back."""

import logging
from contextlib import suppress
from functools import partial
from typing import Final

from adapters.base import Support, Transaction, TransactionState
from bridge.engine.clock import BackgroundTasks, Clock
from bridge.engine.counters import Counters
from bridge.engine.open_transactions import Decision
from bridge.engine.transactions import Transactions
from bridge.errors import BackendUnavailable, BridgeError, TransactionEnded, TransactionUnknown

_TICK: Final = 0.25
"""Seconds between two looks at the deadlines, while there is one."""
_SCAN: Final = 5_000
"""Milliseconds between two searches for transactions that this bridge has not begun; and how much later than their own
bridge this one ends them, which is only necessary if that bridge is gone."""

_log = logging.getLogger("bridge.engine")


class TransactionWatch:
    """Looks at the deadlines of open transactions, also of those that other bridges began."""

    def __init__(self, transactions: Transactions, clock: Clock, counters: Counters) -> None:
        self._transactions = transactions
        self._clock = clock
        self._counters = counters
        self._background = BackgroundTasks()

    def start(self) -> None:
        """Watch the deadlines; call it when the backend is ready."""
        if self._transactions.support is not Support.UNSUPPORTED:
            self._background.start(self._watch)

    async def close(self) -> None:
        """End the watch. Open transactions stay open for the next start, or for another bridge."""
        await self._background.close()

    async def _watch(self) -> None:
        scanned = self._clock.mono() - _SCAN
        while True:
            if self._clock.mono() - scanned >= _SCAN:
                scanned = self._clock.mono()
                self._find_foreign()
            for name in self._transactions.deadlines.take_due(self._clock.wall()):
                self._background.start(partial(self._end, name))
            await self._transactions.deadlines.wait(_TICK, _SCAN / 1000 + _TICK)

    def _find_foreign(self) -> None:
        with suppress(BackendUnavailable):  # the next search comes soon
            for each in self._transactions.all_open():
                self._transactions.deadlines.add(each.id, each.began + each.timeout + _SCAN)

    async def _end(self, name: str) -> None:
        """Check a transaction back after its timeout, and end it; or plan the next check."""
        transactions = self._transactions
        try:
            known = transactions.get(name)
            if known.state is not TransactionState.OPEN:
                transactions.forget(name)
                return
            decision = Decision.ROLLBACK if known.check is None else await self._decision(known)
            if decision is Decision.UNKNOWN and transactions.deadlines.undecided(name, self._clock.wall()):
                return
            if decision is Decision.COMMIT:
                await transactions.commit(name)
            else:
                await transactions.rollback(name)
                _log.warning("a transaction is rolled back after its timeout", extra={"transaction": name})
        except (TransactionEnded, TransactionUnknown):
            transactions.forget(name)
        except BridgeError as error:
            _log.warning("a transaction could not be ended", extra={"transaction": name, "reason": error.detail})
            transactions.deadlines.postpone(name, self._clock.wall())

    async def _decision(self, transaction: Transaction) -> Decision:
        checks = self._transactions.checks
        if checks is None:
            return Decision.UNKNOWN
        self._counters.transaction_checks += 1
        return await checks.ask(transaction)
