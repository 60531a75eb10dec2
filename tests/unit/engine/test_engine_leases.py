import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.engine.entries_and_receipts import Receipt, ReceiptSigner
from bridge.errors import LeaseEnded, ReceiptInvalid

BOOK = ReceiptSigner()


@given(st.integers(0, 2**70), st.integers(0, 2**70))
def test_what_is_written_is_read_again(group: int, lease: int) -> None:
    text = BOOK.write(Receipt(group, lease))
    assert BOOK.read(text) == Receipt(group, lease)
    assert set(text) <= set("0123456789abcdef-"), "safe in a header, and no comma"


@given(st.integers(0, 10**6), st.sampled_from("0123456789abcdefABCDEF-,g "))
def test_a_changed_receipt_is_never_another_one(position: int, character: str) -> None:
    text = BOOK.write(Receipt(3, 77))
    position %= len(text)
    forged = text[:position] + character + text[position + 1 :]
    if forged != text:
        with pytest.raises((ReceiptInvalid, LeaseEnded)):
            BOOK.read(forged)


@given(st.integers(0, 5), st.integers(0, 100))
def test_counting_up_does_not_yield_another_receipt(group: int, lease: int) -> None:
    epoch, _, _, mac = BOOK.write(Receipt(9, 9999)).split("-")
    with pytest.raises(ReceiptInvalid):
        BOOK.read(f"{epoch}-{group:x}-{lease:x}-{mac}")


@given(st.text(st.characters()))
def test_a_text_raises_only_bridge_errors(text: str) -> None:
    for forged in (text, f"{text}-1-2-3", f"{BOOK.write(Receipt(1, 2)).split('-')[0]}-{text}-1-2"):
        with pytest.raises((ReceiptInvalid, LeaseEnded)):
            BOOK.read(forged)


def test_the_leases_of_an_earlier_process_have_ended() -> None:
    with pytest.raises(LeaseEnded):
        BOOK.read(ReceiptSigner().write(Receipt(1, 1)))


def test_what_is_no_receipt_is_refused(subtests: pytest.Subtests) -> None:
    for text in ("", "-", "---", "a-b-c", "a-b-c-d-e"):
        with subtests.test(text=text), pytest.raises((ReceiptInvalid, LeaseEnded)):
            BOOK.read(text)
