"""The ledger can fail: each kind of fault, planted in a book in which all else is well."""

import pytest

from tests.ledger.book import Answer, Book, Handed
from tests.ledger.verdict import Verdict, judge

STORED, NOT_STORED, UNKNOWN = Answer


def send(book: Book, name: str, *answers: Answer, key: str | None = "k", sequence: int = 0) -> None:
    for answer in answers:
        book.answered(book.attempt(name, key, sequence, name.encode()), answer)


def deliver(book: Book, name: str, *, body: bytes | None = None, asked: bool = True, done: bool = True) -> Handed:
    handed = book.deliver("g", name, name.encode() if body is None else body, 1, "bridge")
    if asked:
        book.ask(handed)
        if done:
            book.finish(handed)
    return handed


def faults(verdict: Verdict) -> dict[str, list[str]]:
    found = {name: getattr(verdict, name) for name in ("lost", "unexpected", "doubled", "disordered")}
    assert verdict.good == (not any(found.values()))
    return {name: names for name, names in found.items() if names}


@pytest.fixture
def book() -> Book:
    """Three messages of one key and one without, all stored, delivered and acknowledged."""
    book = Book()
    for sequence in range(3):
        send(book, f"m{sequence}", STORED, sequence=sequence)
        deliver(book, f"m{sequence}")
    send(book, "free", STORED, key=None)
    deliver(book, "free")
    assert faults(judge(book, "g")) == {}
    return book


def test_lost(book: Book) -> None:
    send(book, "x", STORED, key=None)
    assert faults(judge(book, "g")) == {"lost": ["x"]}
    assert book.outstanding("g") == {"x"}


def test_lost_although_an_earlier_attempt_was_in_vain(book: Book) -> None:
    send(book, "x", NOT_STORED, UNKNOWN, STORED, key=None)
    assert faults(judge(book, "g")) == {"lost": ["x"]}


@pytest.mark.parametrize("answers", [[UNKNOWN], [NOT_STORED], [UNKNOWN, NOT_STORED]])
def test_what_was_never_answered_stored_need_not_arrive(book: Book, answers: list[Answer]) -> None:
    send(book, "x", *answers, sequence=3)
    assert faults(judge(book, "g")) == {}
    assert not book.outstanding("g")


def test_another_group_has_lost_everything(book: Book) -> None:
    assert faults(judge(book, "h")) == {"lost": ["m0", "m1", "m2", "free"]}


def test_never_sent(book: Book) -> None:
    deliver(book, "x")
    assert faults(judge(book, "g")) == {"unexpected": ["x"]}


def test_delivered_although_answered_not_stored(book: Book) -> None:
    send(book, "x", NOT_STORED, NOT_STORED, key=None)
    deliver(book, "x")
    assert faults(judge(book, "g")) == {"unexpected": ["x"]}


def test_an_attempt_under_way_may_be_delivered(book: Book) -> None:
    book.attempt("x", None, 0, b"x")
    deliver(book, "x")
    assert faults(judge(book, "g")) == {}


def test_another_body(book: Book) -> None:
    send(book, "x", STORED, key=None)
    deliver(book, "x", body=b"y")
    assert faults(judge(book, "g")) == {"unexpected": ["x"]}


def test_another_body_the_second_time(book: Book) -> None:
    send(book, "x", STORED, key=None)
    deliver(book, "x", asked=False)
    deliver(book, "x", body=b"")
    assert faults(judge(book, "g")) == {"unexpected": ["x"]}


@pytest.mark.parametrize("asked", [False, True])
def test_delivered_again_after_it_was_acknowledged(book: Book, asked: bool) -> None:
    deliver(book, "free", asked=asked)
    assert faults(judge(book, "g")) == {"doubled": ["free"]}


def test_acknowledged_twice(book: Book) -> None:
    send(book, "x", STORED, key=None)
    first = deliver(book, "x", asked=False)
    deliver(book, "x")
    book.ask(first)
    assert faults(judge(book, "g")) == {}
    book.finish(first)
    assert faults(judge(book, "g")) == {"doubled": ["x"]}


def test_an_attempt_certainly_in_vain_explains_no_copy(book: Book) -> None:
    send(book, "x", NOT_STORED, STORED, key=None)
    deliver(book, "x")
    deliver(book, "x")
    assert faults(judge(book, "g")) == {"doubled": ["x"]}


def test_an_unknown_attempt_explains_one_copy(book: Book) -> None:
    send(book, "x", UNKNOWN, STORED, key=None)
    deliver(book, "x")
    deliver(book, "x")
    assert faults(judge(book, "g")) == {}
    deliver(book, "x")
    assert faults(judge(book, "g")) == {"doubled": ["x"]}


def test_missing_acknowledgements_explain_deliveries(book: Book) -> None:
    send(book, "x", STORED, key=None)
    deliver(book, "x", asked=False)
    deliver(book, "x", done=False)
    deliver(book, "x")
    assert faults(judge(book, "g")) == {}


def test_a_later_message_of_the_key_came_first(book: Book) -> None:
    for sequence in range(2):
        send(book, f"x{sequence}", STORED, key="x", sequence=sequence)
    deliver(book, "x1")
    deliver(book, "x0")
    assert faults(judge(book, "g")) == {"disordered": ["x1"]}


@pytest.mark.parametrize("asked", [False, True])
def test_the_next_of_the_key_came_before_the_acknowledgement(book: Book, asked: bool) -> None:
    for sequence in range(2):
        send(book, f"x{sequence}", STORED, key="x", sequence=sequence)
    first = deliver(book, "x0", asked=False)
    deliver(book, "x1")
    if asked:
        book.ask(first)
    assert faults(judge(book, "g")) == {"disordered": ["x1"]}


def test_a_message_given_back_holds_its_key(book: Book) -> None:
    for sequence in range(2):
        send(book, f"x{sequence}", STORED, key="x", sequence=sequence)
    deliver(book, "x0", asked=False)
    deliver(book, "x0", done=False)  # an answer that was lost: the message may be settled all the same
    deliver(book, "x1")
    deliver(book, "x0")
    assert faults(judge(book, "g")) == {}


def test_messages_without_a_key_come_in_any_order(book: Book) -> None:
    for sequence in range(2):
        send(book, f"x{sequence}", STORED, key=None, sequence=sequence)
    deliver(book, "x1")
    deliver(book, "x0")
    assert faults(judge(book, "g")) == {}


def test_the_counts_are_told(book: Book) -> None:
    send(book, "x", NOT_STORED, UNKNOWN, STORED, key=None)
    deliver(book, "x", asked=False)
    deliver(book, "x", done=False)
    told = str(judge(book, "g"))
    assert told == (
        "lost 0; unexpected 0; doubled 0; disordered 0; messages 5; attempts 7; answered stored 5;"
        " answered not stored 1; answered unknown 1; bridges 1; deliveries 6; repeated 1;"
        " of those with deliveryCount 1 1; acknowledgements sent 5; answered done 4"
    )


def test_faults_are_named(book: Book) -> None:
    for number in range(7):
        send(book, f"x{number}", STORED, key=None)
    assert str(judge(book, "g")).startswith("lost 7 (x0, x1, x2, x3, x4); unexpected 0;")
