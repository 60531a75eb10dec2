"""What the records of transactions come to: the first end counts, and copies stand for what the stream has dropped."""

import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties
from adapters.base import Transaction, TransactionState
from adapters.rabbitmq.transaction import ledger
from adapters.rabbitmq.transaction.ledger import Ledger, encode
from adapters.wall_clock import wall
from bridge.message import Message

YEAR = 31_536_000_000
NAMES = ("a", "b")
KINDS = ("prepare", "prepare", "commit", "late", "rollback", "take", "stored")
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(NAMES)), max_size=25)
MARKS = st.from_regex(
    rb'\["(commit|rollback|take|stored|ended|read)"(, ("a"|1|null|\[(1|\{"x": 1\})?\])){0,4}\]', fullmatch=True
)
HEADERS = st.none() | st.binary() | st.text() | st.just(json.dumps(["a", 1, 1, None, "d", None, 1, None]))


class Record(NamedTuple):
    """One record of the stream."""

    name: str
    step: str
    of: str
    """Its transaction."""
    body: bytes
    properties: Properties


def begun(name: str, began: int = 0) -> Transaction:
    return Transaction(name, TransactionState.OPEN, began, 60_000, f"https://{name}", 0, 0)


def message(number: int) -> Message:
    partition = None if number % 2 else number
    return Message("d", b"%d" % number, message_id=f"m{number}", born_timestamp=1, born_host="h", partition=partition)


def write(steps: Sequence[tuple[str, str]]) -> Iterator[Record]:
    """Return the records of steps. A commit names what its writer has read; a late one has missed a message."""
    seen = Ledger()
    for number, (step, name) in enumerate(steps):
        body, properties = b"", Properties()
        unfinished = seen.unfinished.get(name)
        if step == "prepare":
            body, properties = ledger.prepared(begun(name, number), message(number), 5)
        elif step in {"commit", "late"}:
            count = 0 if unfinished is None else len(unfinished.prepared) - (step == "late")
            body = encode("commit", name, f"x.{number}", [{"partition": 1}, None, *[{}] * 25][:count])
        elif step == "take":
            body = encode("take", name, (unfinished and unfinished.bridge) or "x", f"y.{number}")
        elif step == "rollback":
            body = encode("rollback", name)
        elif unfinished is not None and unfinished.bridge is not None:
            body = encode("stored", name)
        else:
            continue
        record = Record(f"r{number}", step, name, body, properties)
        read(seen, record)
        yield record


def read(found: Ledger, record: Record) -> bool:
    return found.read(record.name, Arrival(0, False, "", record.properties, record.body))


def unfinished(found: Ledger) -> dict[str, object]:
    return {
        name: (found.transactions[name], each.messages(), each.bridge, list(each.changes))
        for name, each in found.unfinished.items()
    }


@given(STEPS)
@example([("prepare", "a"), ("commit", "a"), ("rollback", "a"), ("commit", "a")])
@example([("prepare", "a"), ("rollback", "a"), ("commit", "a"), ("prepare", "a")])
def test_the_first_end_counts(steps: list[tuple[str, str]]) -> None:
    found, state, sizes = Ledger(), dict[str, str](), dict.fromkeys(NAMES, 0)
    for record in write(steps):
        counts, before = read(found, record), state.get(record.of, "unknown")
        if record.step == "prepare":
            assert counts == (before in {"unknown", "open"})
            sizes[record.of] += counts
            state.setdefault(record.of, "open")
        elif record.step in {"commit", "late", "rollback"}:
            assert counts == (before == "open" and record.step != "late")
            if counts:
                state[record.of] = {"commit": "committed", "rollback": "rolled-back"}[record.step]
    assert {name: (known.state.value, known.messages) for name, known in found.transactions.items()} == {
        name: (said, sizes[name]) for name, said in state.items()
    }
    assert found.size == sum(found.transactions[name].size for name in found.unfinished)


@given(STEPS, st.integers(0, 8), st.integers(0, 25))
@example([("prepare", "a")] * 4 + [("commit", "a"), ("take", "a"), ("stored", "a")], 2, 3)
@example([("prepare", "a"), ("prepare", "b"), ("prepare", "a"), ("rollback", "a")], 1, 2)
def test_copies_stand_for_what_was_dropped(steps: list[tuple[str, str]], dropped: int, kept: int) -> None:
    stream, whole = list(write(steps)), Ledger()
    for record in stream[:dropped]:
        read(whole, record)
    early = set(whole.transactions)
    for record in stream[dropped : dropped + kept]:
        # a record that does not count comes just after the end that counts: the stream is not cut between them
        assume(read(whole, record) or record.of not in early)
    copies = [
        Record(f"c{number}", "copy", name, body, properties or Properties())
        for name in whole.unfinished
        for number, (body, properties) in enumerate(whole.copies(name))
    ]
    late = Ledger()
    for record in (*stream[dropped : dropped + kept], *copies):
        read(late, record)
    for record in copies:
        read(whole, record)
    assert unfinished(late) == unfinished(whole)
    for record in stream[dropped + kept :]:
        assume(record.of not in early or record.of in whole.unfinished)
        assert read(late, record) == read(whole, record)
    assert unfinished(late) == unfinished(whole)


@given(STEPS, st.integers(0, 25))
@example([("prepare", "a"), ("prepare", "a"), ("commit", "a")], 1)
@example([("prepare", "a"), ("commit", "a"), ("stored", "a")], 1)
@example([("prepare", "a"), ("rollback", "a")], 1)
def test_what_a_stream_has_lost_can_be_written_again(steps: list[tuple[str, str]], left: int) -> None:
    stream, whole, cut = list(write(steps)), Ledger(), Ledger()
    for record in stream:
        read(whole, record)
    for record in stream[:left]:
        read(cut, record)
    for number, (body, properties) in enumerate(whole.missing_in(cut)):
        cut.read(f"c{number}", Arrival(0, False, "", properties or Properties(), body))
    assert whole.missing_in(cut) == []
    cut.take_over(whole)
    assert {name: each.state for name, each in cut.transactions.items()} == {
        name: each.state for name, each in whole.transactions.items()
    }
    for name, each in whole.unfinished.items():
        assert cut.unfinished[name].messages() == each.messages()
        assert list(cut.unfinished[name].changes) == list(each.changes)
    assert cut.unfinished.keys() == whole.unfinished.keys()
    assert cut.size == whole.size


def test_a_message_prepared_in_a_new_stream_does_not_hide_those_that_were_lost() -> None:
    """It was sent before its bridge noticed that the stream was deleted."""
    old, new = Ledger(), Ledger()
    for record in write([("prepare", "a")] * 3):
        read(old, record)
    read(new, Record("r3", "prepare", "a", *ledger.prepared(begun("a"), message(3), 5)))
    for number, (body, properties) in enumerate(old.missing_in(new)):
        read(new, Record(f"c{number}", "copy", "a", body, properties or Properties()))
    assert new.unfinished["a"].messages() == [message(number) for number in range(4)]


@given(st.integers(2, 6), st.data())
def test_all_bridges_have_the_same_order_while_messages_are_copied(count: int, data: st.DataObject) -> None:
    """A bridge that starts reads the last records of a transaction, its copies, and between them a new message."""
    stream, whole = list(write([("prepare", "a")] * count)), Ledger()
    for record in stream:
        read(whole, record)
    copies = [
        Record(f"c{number}", "copy", "a", body, properties or Properties())
        for number, (body, properties) in enumerate(whole.copies("a"))
    ]
    new = Record("new", "prepare", "a", *ledger.prepared(begun("a"), message(count), 5))
    copies.insert(data.draw(st.integers(0, count)), new)
    late = Ledger()
    for record in copies:
        read(whole, record)
    for record in (*stream[data.draw(st.integers(1, count)) :], *copies):
        read(late, record)
    expected = [message(number) for number in range(count + 1)]
    assert whole.unfinished["a"].messages() == late.unfinished["a"].messages() == expected
    again = Ledger()
    for number, (body, properties) in enumerate(late.copies("a")):
        read(again, Record(f"d{number}", "copy", "a", body, properties or Properties()))
    assert again.unfinished["a"].messages() == expected


@given(st.binary() | MARKS, HEADERS)
def test_other_records_are_refused_or_harmless(body: bytes, header: bytes | str | None) -> None:
    found = Ledger()
    properties = Properties(headers={} if header is None else {"oms_d_prepared": header})
    with suppress(ValueError):
        found.read("n", Arrival(0, False, "", properties, body))
    assert not found.unfinished


def test_a_message_comes_back_as_it_was_prepared() -> None:
    found = Ledger()
    prepared = message(1)._replace(
        body=gzip.compress(b"x"),
        properties={"städte": "zürich"},
        message_key="k",
        message_id="i" * 300,
        transaction_id="a",
        born_timestamp=wall(),
        delay_time=YEAR,
        expire_time=wall() + YEAR,
        compression="gzip",
    )
    body, properties = ledger.prepared(begun("a"), prepared, wall())
    assert found.read("n", Arrival(0, False, "", properties, body))
    assert found.unfinished["a"].messages() == [prepared]
    completed = prepared._replace(store_timestamp=9, store_host="h:1", partition=2)
    mark = encode("commit", "a", "x", [ledger.changes(prepared, completed)])
    assert found.read("m", Arrival(0, False, "", Properties(), mark))
    assert found.unfinished["a"].completed() == [completed]


def test_only_so_many_ended_transactions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "ENDED_MAX", 2)
    found = Ledger()
    for name in ("a", "b", "c"):
        found.read(name, Arrival(0, False, "", Properties(), encode("stored", name)))
    assert list(found.transactions) == ["b", "c"]


def test_a_bridge_that_starts_knows_ended_transactions_from_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(found: Ledger, *bodies: bytes) -> None:
        for body in bodies:
            assert found.read("n", Arrival(0, False, "", Properties(), body))

    monkeypatch.setattr(ledger, "_LIST", 11_000)
    monkeypatch.setattr(ledger, "_LISTED", 2)
    whole, late = Ledger(), Ledger()
    for number in range(5):
        assert whole.listings() == []
        whole.read(f"m{number}", Arrival(0, False, "", *ledger.prepared(begun(f"t{number}"), message(0), 5)[::-1]))
        read(whole, encode("rollback", f"t{number}") if number else encode("commit", "t0", "x", [None]))
    read(whole, encode("stored", "t0"))
    listing = whole.listings()
    assert [json.loads(each)[2] for each in listing] == [False, False, True]
    read(whole, *listing[:-1])
    assert whole.listings() == listing, "a list that was broken off is written again"
    read(whole, listing[-1])
    assert whole.listings() == []
    read(late, *listing, *listing)
    assert {name: each.state for name, each in late.transactions.items()} == {
        name: each.state for name, each in whole.transactions.items()
    }
    assert not late.read("p", Arrival(0, False, "", *ledger.prepared(begun("t1"), message(0), 5)[::-1]))
    read(late, encode("stored", "t9"))
    monkeypatch.setattr(ledger, "_LIST", 0)
    assert ["t9", "committed"] in json.loads(late.listings()[0])[1]


def test_a_list_displaces_no_newer_ended_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(found: Ledger, *bodies: bytes) -> None:
        for body in bodies:
            found.read("n", Arrival(0, False, "", Properties(), body))

    monkeypatch.setattr(ledger, "_LIST", 0)
    monkeypatch.setattr(ledger, "ENDED_MAX", 3)
    running, started = Ledger(), Ledger()
    read(running, *(encode("stored", name) for name in "abc"))
    listing = running.listings()
    read(running, encode("stored", "d"), *listing)
    assert list(running.transactions) == ["b", "c", "d"]
    read(started, encode("stored", "d"), *listing, encode("stored", "e"))
    assert sorted(started.transactions) == ["c", "d", "e"], "the oldest of the list is forgotten first"


def test_a_list_ends_nothing_that_is_unfinished() -> None:
    found = Ledger()
    body, properties = ledger.prepared(begun("a"), message(0), 5)
    assert found.read("m", Arrival(0, False, "", properties, body))
    assert found.read("n", Arrival(0, False, "", Properties(), b'["ended", [["a", "committed"]], true]'))
    assert found.transactions["a"].state is TransactionState.OPEN
    for pairs in (b'[["a", "open"]]', b'[["a"]]', b'["a"]', b'[[1, "committed"]]'):
        with pytest.raises(ValueError, match="not a record of a transaction"):
            found.read("n", Arrival(0, False, "", Properties(), b'["ended", ' + pairs + b", true]"))
