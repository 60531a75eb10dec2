"""Transactions are prepared, committed, rolled back, checked and timed out in any order, against a model."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from adapters.base import Transaction, TransactionState
from adapters.memory.adapter import MemoryAdapter
from adapters.memory.options import Options
from adapters.testing.replay import logs_of
from bridge.engine.engine import Engine
from bridge.engine.open_transactions import Decision, TransactionChecks, TransactionRequest
from bridge.engine.options import EngineOptions
from bridge.errors import BridgeError, TransactionEnded, TransactionUnknown
from bridge.message import Message
from tests.unit.engine.virtual import LoopClock, VirtualLoop

T = TypeVar("T")

TIMEOUT: Final = 10.0
LAST_CHECK: Final = 385.0
"""Seconds after which the last of ten checks comes: 10, and pauses of 5, 10, 20, 40 and five times 60."""
LATE: Final = 5.0
"""Seconds by which a deadline may be noticed late, also over ten checks."""
NAMES: Final = st.sampled_from(["a", "b", "c", "d", "e"])
DESTINATIONS: Final = ("orders", "bills")
ENDS: Final = {Decision.COMMIT: TransactionState.COMMITTED, Decision.ROLLBACK: TransactionState.ROLLED_BACK}


@dataclass
class Model:
    """One transaction as it must be."""

    began: float
    decision: Decision | None
    """What its producer answers; None: it has no check."""
    state: TransactionState = TransactionState.OPEN
    messages: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def due(self) -> float:
        """When the bridge ends it, if no client does, or up to `LATE` seconds later."""
        return self.began + (LAST_CHECK if self.decision is Decision.UNKNOWN else TIMEOUT)

    def ends_about(self, now: float) -> bool:
        """Whether the bridge may or may not have ended it."""
        return self.state is TransactionState.OPEN and self.due - 1 <= now <= self.due + LATE


class Transactions(RuleBasedStateMachine):
    """One bridge on the memory backend, on a loop with virtual time."""

    @initialize()
    def start(self) -> None:
        self.loop = VirtualLoop()
        self.models: dict[str, Model] = {}
        self.numbers = 0
        self.run(self._start())

    async def _start(self) -> None:
        self.adapter = MemoryAdapter(Options(partitions=1))
        self.engine = Engine(self.adapter, LoopClock(self.loop), EngineOptions(store_host="here"))

        async def ask(transaction: Transaction) -> Decision:
            return self.models[transaction.id].decision or Decision.UNKNOWN

        self.engine.transactions.checks = TransactionChecks(lambda _: None, ask)
        await self.engine.start()

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.run(self.engine.close())
            self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @rule(name=NAMES, bodies=st.lists(st.sampled_from(DESTINATIONS), min_size=1, max_size=3),
          decision=st.sampled_from([None, *Decision]), repeats=st.booleans(), commits=st.booleans())  # fmt: skip
    def produce(self, name: str, bodies: list[str], decision: Decision | None, *, repeats: bool, commits: bool) -> None:
        """Prepare messages in one request, perhaps each of them twice, and perhaps commit with them."""
        messages = []
        for destination in bodies:
            self.numbers += 1
            body = b"%d" % self.numbers
            messages.append(Message(destination, body, message_id=f"m{self.numbers}"))
        given = [each for message in messages for each in [message] * (1 + repeats)]
        check = None if decision is None else "https://shop.example/"
        request = TransactionRequest(name, commits, int(TIMEOUT * 1000), check)
        results = self.run(self.engine.transactions.produce(request, given, (), "127.0.0.1:1", None))
        model = self.models.get(name)
        if model is not None and model.state is not TransactionState.OPEN:
            assert [type(result) for result in results] == [TransactionEnded] * len(given)
            return
        assert not any(isinstance(result, BridgeError) for result in results)
        if model is None:
            model = self.models[name] = Model(self.loop.time(), decision)
        model.messages += [(message.destination, message.body) for message in messages]
        if commits:
            model.state = TransactionState.COMMITTED

    @rule(name=NAMES, state=st.sampled_from(list(ENDS.values())))
    def end(self, name: str, state: TransactionState) -> None:
        """Commit or roll back."""
        transactions = self.engine.transactions

        async def ended() -> Transaction:
            if state is not TransactionState.COMMITTED:
                return await transactions.rollback(name)
            return await transactions.commit(name)

        error: type[BridgeError] | None = None
        try:
            assert self.run(ended()).state is state
        except (TransactionUnknown, TransactionEnded) as caught:
            error = type(caught)
        model = self.models.get(name)
        if model is None:
            assert error is TransactionUnknown
        elif model.state in {TransactionState.OPEN, state}:
            assert error is None
            model.state = state
        else:
            assert error is TransactionEnded

    @rule(seconds=st.sampled_from([1, 4, 12, 400]))
    def pass_time(self, seconds: int) -> None:
        """Let deadlines come."""
        self.run(asyncio.sleep(seconds))
        while any(model.ends_about(self.loop.time()) for model in self.models.values()):
            self.run(asyncio.sleep(1))
        for model in self.models.values():
            if model.state is TransactionState.OPEN and model.due < self.loop.time():
                model.state = ENDS.get(model.decision or Decision.ROLLBACK, TransactionState.ROLLED_BACK)

    @invariant()
    def states_are_those_of_the_model(self) -> None:
        """Each transaction is where the model has it, and only open ones are counted."""
        if not hasattr(self, "models"):
            return
        known = self.adapter.known_transactions()
        assert {name: known[name].state for name in known} == {name: each.state for name, each in self.models.items()}
        opened = [name for name, each in self.models.items() if each.state is TransactionState.OPEN]
        assert self.engine.transactions.opened == len(opened)
        assert [known[name].messages for name in opened] == [len(self.models[name].messages) for name in opened]

    @invariant()
    def committed_messages_are_visible_whole_and_in_order(self) -> None:
        """A log has all messages of committed transactions, those of each one behind one another, and no others."""
        if not hasattr(self, "models"):
            return
        logs = {log.split("/")[1]: log for log in logs_of(self.adapter)}
        for destination in DESTINATIONS:
            found: Sequence[Message] = []
            if destination in logs:
                found = self.adapter.replay(logs[destination], 0, 10_000, 1 << 30).messages
            bodies = [message.body for message in found]
            expected: Counter[bytes] = Counter()
            for each in self.models.values():
                own = [body for where, body in each.messages if where == destination]
                if own and each.state is TransactionState.COMMITTED:
                    expected.update(own)
                    start = bodies.index(own[0])
                    assert bodies[start : start + len(own)] == own
            assert Counter(bodies) == expected


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
