"""The table of transactions: what each entry of the topic brings about, in the order in which they are stored."""

from collections.abc import Sequence

from adapters.base import Transaction, TransactionState
from adapters.kafka.mapping import Outgoing, Record
from adapters.kafka.transaction import table
from adapters.kafka.transaction.table import (
    HEADERS,
    Entry,
    Kind,
    TransactionTable,
    Verdict,
    control,
    ended,
    entry_of,
    message_of,
    prepared,
)
from bridge.message import Message

TOPIC = "oms.transactions"
HOUR = 3_600_000
NOW = 1_800_000_000_000
DONE, BLOCKED, ENDED, UNKNOWN = Verdict


class Log:
    """A table, and the records that it was given."""

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self.table = TransactionTable()
        self.records: list[Record] = []
        for record in records:
            self.take(record)

    def take(self, record: Record) -> Verdict:
        self.records.append(record)
        return self.table.apply(entry_of(record), record)

    def add(self, outgoing: Outgoing) -> Verdict:
        return self.take(Record(TOPIC, 0, len(self.records), *outgoing[2:]))

    def say(self, kind: Kind, name: str = "tx", writer: str = "", now: int = NOW) -> Verdict:
        return self.add(control(TOPIC, Entry(kind, name, writer), now))

    def prepare(self, body: bytes, name: str = "tx", now: int = NOW) -> Verdict:
        begun = Transaction(name, TransactionState.OPEN, now, 60_000, "https://a", messages=0, size=0)
        message = Message("orders", body, {"k": "ü"}, message_id="m", born_timestamp=now, born_host="h")
        return self.add(prepared(TOPIC, Entry(Kind.PREPARED, name), begun, message, now))

    def bodies(self, name: str = "tx") -> list[bytes]:
        return [message.body for message in self.messages(name)]

    def messages(self, name: str = "tx") -> list[Message]:
        return [message_of(each.record) for each in self.table.claimed(name) if each.record is not None]

    def state(self, name: str = "tx") -> TransactionState | None:
        known = self.table.known.get(name)
        return None if known is None else known.state


def test_the_first_claim_wins_until_it_is_released_or_its_writer_retired() -> None:
    log = Log()
    assert log.say(Kind.CLAIMED, writer="a") is UNKNOWN
    assert log.prepare(b"1") is DONE
    assert [log.say(Kind.CLAIMED, writer=writer) for writer in "aba"] == [DONE, BLOCKED, DONE]
    assert log.say(Kind.ROLLED_BACK) is BLOCKED
    log.say(Kind.RELEASED, writer="b")
    assert log.table.owner("tx") == "a", "only its own claim is released"
    log.say(Kind.RELEASED, writer="a")
    assert log.say(Kind.CLAIMED, writer="b") is DONE
    log.say(Kind.RETIRED, "", "b")
    assert log.table.owner("tx") is None
    assert log.say(Kind.ROLLED_BACK) is DONE
    assert [log.say(Kind.CLAIMED, writer="a"), log.prepare(b"2"), log.say(Kind.ROLLED_BACK)] == [ENDED] * 3
    assert log.state() is TransactionState.ROLLED_BACK


def test_a_message_behind_a_claim_counts_only_if_the_claim_fails() -> None:
    log = Log()
    log.prepare(b"1")
    log.say(Kind.CLAIMED, writer="a")
    assert log.prepare(b"2") is BLOCKED
    assert log.bodies() == [b"1"]
    log.say(Kind.RETIRED, "", "a")
    log.say(Kind.CLAIMED, writer="b")
    assert log.bodies() == [b"1", b"2"]
    assert log.table.known["tx"].messages == 2
    log.say(Kind.COMMITTED, writer="b")
    assert log.state() is TransactionState.COMMITTED


def test_a_message_comes_back_as_it_was_prepared() -> None:
    message = Message(
        *("orders", b"body", {"ce_type": "x", "ü": "\ud800"}),
        message_id="m",
        born_timestamp=1,
        born_host="h",
        partition=2,
        message_key="",
        transaction_id="tx",
    )
    begun = Transaction("tx \ud800", TransactionState.OPEN, 5, 6, None, messages=0, size=0)
    log = Log()
    log.add(prepared(TOPIC, Entry(Kind.PREPARED, begun.id), begun, message, NOW))
    log.say(Kind.CLAIMED, begun.id, "a")
    assert log.messages(begun.id) == [message._replace(properties={"ce_type": "x", "ü": "?"})]
    assert log.table.known == {begun.id: begun._replace(messages=1, size=message.size)}


def test_only_the_messages_of_this_bridge_are_kept() -> None:
    log = Log()
    log.table = TransactionTable("me/")
    begun = Transaction("tx", TransactionState.OPEN, NOW, 60_000, None, messages=0, size=0)
    sizes = []
    for number, token in enumerate(("me/1", "other/1", "me/2")):
        message = Message("orders", bytes(10 * number), message_id="m", born_timestamp=NOW, born_host="h")
        sizes.append(message.size + HEADERS)
        log.add(prepared(TOPIC, Entry(Kind.PREPARED, "tx", token=token), begun, message, NOW))
    assert (log.table.size, log.table.held) == (sum(sizes), sizes[0] + sizes[2])
    log.say(Kind.CLAIMED, writer="a")
    claimed = log.table.claimed("tx")
    assert [(each.token, each.offset, each.record is None) for each in claimed] == [
        *(("me/1", 0, False), ("", 1, True), ("me/2", 2, False)),
    ]
    log.say(Kind.COMMITTED, writer="a")
    assert (log.table.size, log.table.held) == (0, 0)


def test_the_list_of_what_has_ended_replaces_older_records() -> None:
    log = Log()
    names = [f"tx {number}" for number in range(5_000)]
    for number, name in enumerate(names):
        log.prepare(b"", name)
        if number % 2:
            log.say(Kind.ROLLED_BACK, name)
        else:
            log.say(Kind.CLAIMED, name, "a")
            log.say(Kind.COMMITTED, name, "a")
    log.prepare(b"open", "open")
    low = log.table.low
    assert low == len(log.records) - 1
    records = ended(TOPIC, Entry(Kind.ENDED), log.table.ended, NOW)
    assert len(records) > 1, "a record has a limit"
    assert max(len(record.value or b"") for record in records) <= table._LIST_MAX + 10_000
    for record in records:
        log.add(record)
    assert log.table.unlisted == 0
    again = Log(log.records[low:])
    assert {name: log.state(name) for name in names} == {name: again.state(name) for name in names}
    assert again.table.known["open"] == log.table.known["open"]
    assert again.table.ended == [(each._replace(messages=0, size=0, check=None), at) for each, at in log.table.ended]


def test_what_ended_an_hour_ago_is_forgotten() -> None:
    log = Log()
    log.prepare(b"")
    log.say(Kind.ROLLED_BACK)
    log.prepare(b"", "other", now=NOW + HOUR - 1)
    assert log.state() is TransactionState.ROLLED_BACK
    log.prepare(b"", "other", now=NOW + HOUR)
    assert set(log.table.known) == {"other"}
