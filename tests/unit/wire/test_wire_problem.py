import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import (
    BackendUnavailable,
    BridgeError,
    HeaderInvalid,
    NotStored,
    OutcomeUnknown,
    QuotaExceeded,
    Rejected,
    decode_problem,
    encode_problem,
    problem_members,
)


def leaves(cls: type[BridgeError]) -> list[type[BridgeError]]:
    """Return the errors of the contract below `cls`: without the subclasses of adapters."""
    below = [leaf for sub in cls.__subclasses__() if sub.__module__ == cls.__module__ for leaf in leaves(sub)]
    return below or [cls]


LEAVES = sorted(leaves(BridgeError), key=lambda cls: cls.code)
each = pytest.mark.parametrize("cls", LEAVES, ids=lambda cls: cls.__name__)


def test_every_error_survives_its_document(subtests: pytest.Subtests) -> None:
    for cls in LEAVES:
        with subtests.test(cls=cls):
            error = cls('What was wrong: "ü"\r\n.')
            _, body = encode_problem(error)
            read = decode_problem(cls.status, json.loads(body))
            assert type(read) is cls
            assert read.detail == error.detail


def test_a_status_promises_what_became_of_the_message(subtests: pytest.Subtests) -> None:
    for cls in LEAVES:
        with subtests.test(cls=cls):
            if issubclass(cls, Rejected):
                assert 400 <= cls.status < 500
            elif issubclass(cls, NotStored):
                assert cls.status == 503
            else:
                assert cls.status == (504 if cls is OutcomeUnknown else 500)
            assert cls.retry_safe is issubclass(cls, NotStored)


def test_headers_repeat_what_the_document_says(subtests: pytest.Subtests) -> None:
    for cls in LEAVES:
        with subtests.test(cls=cls):
            pairs, body = encode_problem(cls("detail"))
            headers = dict(pairs)
            assert headers[b"content-type"] == b"application/problem+json"
            assert headers[b"x-oms-error"] == cls.code.encode()
            assert (headers.get(b"x-oms-retry-safe") == b"true") is cls.retry_safe is json.loads(body)["retrySafe"]
            assert (b"retry-after" in headers) is issubclass(cls, NotStored)


def test_every_code_is_used_once_and_every_class_is_documented() -> None:
    codes = [cls.code for cls in LEAVES]
    assert len(codes) == len(set(codes))
    assert all(code == code.lower() and code.replace("-", "").isalpha() for code in codes)
    assert all(cls.__doc__ for cls in LEAVES)


def test_the_seconds_to_wait_are_told() -> None:
    assert (b"retry-after", b"7") in encode_problem(QuotaExceeded("slower", retry_after=7))[0]


def test_the_document_is_that_of_rfc_9457() -> None:
    assert problem_members(HeaderInvalid("wrong")) == {
        "type": "urn:openmessaging-bridge:problem:header-invalid",
        "title": "Header invalid",
        "status": 400,
        "code": "header-invalid",
        "detail": "wrong",
        "retrySafe": False,
    }


def test_an_unknown_document_becomes_what_its_status_promises(subtests: pytest.Subtests) -> None:
    cases: list[tuple[int, object, type[BridgeError]]] = [
        (400, {"code": "of-a-later-version"}, Rejected),
        (499, None, Rejected),
        (503, {"code": "of-a-later-version", "retrySafe": True}, BackendUnavailable),
        (503, {"code": "of-a-later-version"}, OutcomeUnknown),
        (503, {"retrySafe": "true"}, OutcomeUnknown),
        (500, "<html>", OutcomeUnknown),
        (502, [], OutcomeUnknown),
        (504, {}, OutcomeUnknown),
    ]
    for status, document, expected in cases:
        with subtests.test(status=status, document=document, expected=expected):
            assert isinstance(decode_problem(status, document), expected)


def test_an_unknown_document_keeps_its_detail_or_names_the_status() -> None:
    assert decode_problem(502, []).detail == decode_problem(502, {"code": "later"}).detail == "The bridge answered 502."
    assert (
        decode_problem(400, {"detail": "why"}).detail
        == decode_problem(503, {"detail": "why", "retrySafe": True}).detail
        == "why"
    )


@given(
    st.integers(400, 599),
    st.recursive(
        st.one_of(st.none(), st.text(), st.integers(), st.booleans()),
        lambda inner: st.dictionaries(st.sampled_from(("code", "detail", "retrySafe", "status")), inner),
    ),
)
def test_no_document_makes_a_reader_fail(status: int, document: object) -> None:
    assert isinstance(decode_problem(status, document), BridgeError)
