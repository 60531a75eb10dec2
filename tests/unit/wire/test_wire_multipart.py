from email.message import Message as EmailMessage

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bridge.errors import (
    BodyInvalid,
    BodyTooLarge,
    BridgeError,
    ContentTypeUnsupported,
    HeaderInvalid,
    HeaderRepeated,
    HeadersTooLarge,
    Rejected,
    VersionUnsupported,
)
from bridge.long_work import run_at_once
from bridge.message import Message
from bridge.wire.headers import encode
from bridge.wire.multipart import CLOSING, boundary_of, decode, encode_part, encode_parts, opening
from tests.unit.strategies import messages

B = b"frontier-7f3a"
HEADER_LIMIT = 32768


def part(body: bytes = b"", *lines: bytes, destination: bytes | None = b"orders") -> bytes:
    head = [b"x-oms-h-destination: " + destination] if destination is not None else []
    return b"\r\n".join([*head, *lines]) + b"\r\n\r\n" + body


def batch(*parts: bytes, preamble: bytes = b"", epilogue: bytes = b"\r\n") -> bytes:
    return preamble + b"".join(b"--" + B + b"\r\n" + p + b"\r\n" for p in parts) + b"--" + B + b"--" + epilogue


def read(raw: bytes, limit: int = 100) -> list[Message | BridgeError]:
    return run_at_once(decode(raw, B, limit, HEADER_LIMIT))


def bodies(raw: bytes, limit: int = 100) -> list[bytes]:
    return [m.body for m in read(raw, limit) if isinstance(m, Message)]


@given(st.lists(messages().filter(lambda m: b"\r\n--" + B not in b"\r\n" + m.body), min_size=1, max_size=4))
def test_a_batch_that_is_encoded_is_decoded_again(batch: list[Message]) -> None:
    assert read(encode_parts(batch, B)) == batch


@given(messages(), messages())
def test_a_stream_of_parts_is_a_batch_once_it_is_closed(first: Message, second: Message) -> None:
    parts = [encode_part(encode(message), message.body, B) for message in (first, second)]
    assert read(opening(B) + parts[0] + parts[1] + CLOSING) == [first, second]
    assert all(part.endswith(b"\r\n--" + B) for part in parts), "its end is on the wire with it"


@given(
    st.lists(
        st.sampled_from((b"--" + B, B, b"--", b"\r\n", b"\n", b" ", b":", b"a", b"x-oms-h-destination: a")), max_size=20
    )
)
def test_no_framing_raises_anything_but_the_error_tree(pieces: list[bytes]) -> None:
    raw = b"".join(pieces)
    try:
        results = read(raw, 3)
    except Rejected:
        return
    assert 0 < len(results) <= 3
    assert raw.rstrip(b"\r\n \t:a").count(B) > len(results)


@given(st.binary(max_size=100))
def test_no_bytes_raise_anything_but_the_error_tree(raw: bytes) -> None:
    with pytest.raises(Rejected):
        read(raw)
    for result in read(batch(raw)):
        assert isinstance(result, (Message, Rejected))


def test_a_body_may_hold_anything_but_the_boundary(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [
        b"",
        b"\r\n",
        b"\r\n--",
        b"--" + B[:-1],
        b"\r\n--" + B[:-1],
        b"\r\n\r\n",
        b"\0\xff\r",
        b"\n--" + B,
    ]
    for body in cases:
        with subtests.test(body=body):
            assert bodies(batch(part(body), part(b"next"))) == [body, b"next"]


def test_preamble_and_epilogue_are_ignored(subtests: pytest.Subtests) -> None:
    for epilogue in (b"", b"\r\n", b"  \r\n", b"\r\nThe end.\r\n", b"\r\n\0\xff"):
        for preamble in (b"", b"\r\n", b"This is a batch.\r\n", b"a\r\n--other\r\n"):
            with subtests.test(epilogue=epilogue, preamble=preamble):
                assert bodies(batch(part(b"1"), part(b"2"), preamble=preamble, epilogue=epilogue)) == [b"1", b"2"]


def test_white_space_may_follow_a_boundary() -> None:
    assert bodies(batch(part(b"1")).replace(B + b"\r\n", B + b" \t\r\n")) == [b"1"]


def test_broken_framing_fails_the_whole_batch(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [
        b"",
        b"--" + B,
        b"--" + B + b"--",
        b"--" + B + b"--\r\n",
        batch(),
        batch(part(b"1"))[: -len(B) - 6],
        batch(part(b"1")).removesuffix(b"--\r\n"),
        batch(part(b"1")).removesuffix(b"-\r\n"),
        b"--" + B + b"\r\n" + part(b"1"),
        batch(part(b"1")).replace(b"\r\n", b"\n"),
        b"x" + batch(part(b"1")),
    ]
    for raw in cases:
        with subtests.test(raw=raw), pytest.raises(BodyInvalid):
            read(raw)


def test_text_behind_a_boundary_means_that_a_body_holds_it(subtests: pytest.Subtests) -> None:
    """Above all behind a closing one: messages after it would vanish silently."""
    cases: list[bytes] = [b"x", b"--x", b"-", b"--" + B]
    for tail in cases:
        with subtests.test(tail=tail), pytest.raises(BodyInvalid, match="must not contain the boundary"):
            read(batch(part(b"1\r\n--" + B + tail + b"\r\n2"), part(b"3")))


def test_one_bad_part_among_good_ones_is_judged_on_its_own() -> None:
    results = read(batch(part(b"1"), part(b"2", b"x-oms-h-priority: high"), part(b"3", destination=None), part(b"4")))
    assert [type(r).__name__ for r in results] == ["Message", "HeaderInvalid", "HeaderMissing", "Message"]


def test_a_part_with_a_bad_header_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[tuple[list[bytes], type[BridgeError]]] = [
        ([b"no colon"], HeaderInvalid),
        ([b"broken line"], HeaderInvalid),
        ([b"x-oms-h-qos: 9"], HeaderInvalid),
        ([b"x-oms-h-destination: orders"], HeaderRepeated),
        ([b": nameless"], HeaderInvalid),
        ([b"folded: 1", b" 2"], HeaderInvalid),
        ([b"name : 1"], HeaderInvalid),
        ([b"a: 1\n2"], HeaderInvalid),
        ([b"a: 1\r2"], HeaderInvalid),
        ([b"a: \0"], HeaderInvalid),
        ([b"x-oms-h-priority: 1", b"X-OMS-H-Priority: 1"], HeaderRepeated),
        ([b"x-oms-version: 2.0.0"], VersionUnsupported),
        *(([name + b": prepare"], HeaderInvalid) for name in (b"x-oms-transaction", b"x-oms-require")),
        *(([b"x-oms-transaction-" + name + b": 1"], HeaderInvalid) for name in (b"timeout", b"check")),
        ([b"content-length: 5"], BodyInvalid),
        ([b"content-length: 99"], BodyInvalid),
        ([b"content-length: nine"], BodyInvalid),
        ([b"content-length: 04"], BodyInvalid),
        ([b"x: " + b"y" * HEADER_LIMIT], HeadersTooLarge),
        ([b"x-oms-p-long: " + b"x" * 33_000], HeadersTooLarge),
    ]
    for lines, error in cases:
        with subtests.test(lines=lines, error=error):
            (result,) = read(batch(part(b"body", *lines)))
            assert type(result) is error


def test_names_in_capitals_and_outer_spaces_are_those_of_http() -> None:
    (message,) = read(batch(part(b"body", b"X-Oms-H-Priority:9", b"X-OMS-P-City:  x y\t ", b"Content-Length: 4")))
    assert isinstance(message, Message)
    assert (message.priority, message.properties, message.body) == (9, {"city": "x y"}, b"body")


def test_a_part_without_a_blank_line_is_no_message() -> None:
    for raw in (b"", b"no blank line", b"x-oms-h-destination: orders", b"x-oms-h-destination: orders\r\n"):
        (result,) = read(batch(raw))
        assert isinstance(result, BodyInvalid)


def test_a_part_without_headers_says_that_its_destination_is_missing() -> None:
    (result,) = read(batch(b"\r\nbody"))
    assert isinstance(result, BridgeError)
    assert result.code == "header-missing"


@pytest.mark.parametrize("preamble", [b"", b"\r\n", b"preamble\r\n"])
def test_a_batch_has_at_most_as_many_parts_as_allowed(preamble: bytes) -> None:
    assert len(read(batch(*[part()] * 5, preamble=preamble), limit=5)) == 5
    with pytest.raises(BodyTooLarge):
        read(batch(*[part()] * 6, preamble=preamble), limit=5)


def test_a_boundary_is_read_from_its_parameter(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, bytes]] = [
        ("multipart/mixed; boundary=abc", b"abc"),
        ('multipart/mixed; boundary="a b:c;d=e"', b"a b:c;d=e"),
        ("multipart/mixed;charset=utf-8;BOUNDARY=abc", b"abc"),
        ("multipart/mixed; boundary=" + "x" * 70, b"x" * 70),
        ('Multipart/Mixed;BOUNDARY="aB+c_.-9"', b"aB+c_.-9"),
        ('multipart/mixed; boundary=abc"', b'abc"'),
    ]
    for content_type, boundary in cases:
        with subtests.test(content_type=content_type, boundary=boundary):
            assert boundary_of(content_type) == boundary


def test_a_content_type_without_a_usable_boundary_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        "",
        "multipart/mixed",
        "multipart/mixed; boundary=",
        "multipart/mixed; boundary=;charset=utf-8",
        'multipart/mixed; boundary=""',
        "multipart/mixed; boundary=" + "x" * 71,
        "multipart/mixed; boundary=ü",
        "multipart/mixed; boundary=\ud800",
        'multipart/mixed; boundary="a\r\nb"',
        "multipart/mixed; boundary*=a; boundary*1=b",
        "multipart/mixed; boundary*" + "1" * 5000 + "=x",
    ]
    for content_type in cases:
        with subtests.test(content_type=content_type), pytest.raises(ContentTypeUnsupported):
            boundary_of(content_type)


_PIECES = ("boundary", "*", "=", ";", "'", '"', "0", "1", "%ff", "utf-8", "a", "\\", " ", "\r\n", "\0", "é", "\ud800")


@given(st.one_of(st.text(st.characters(), max_size=60), st.lists(st.sampled_from(_PIECES), max_size=15).map("".join)))
def test_no_content_type_raises_anything_but_the_error_tree(text: str) -> None:
    for content_type in (text, "multipart/mixed; " + text, "multipart/mixed; boundary" + text):
        try:
            boundary = boundary_of(content_type)
        except ContentTypeUnsupported:
            continue
        assert 1 <= len(boundary) <= 70
        assert boundary.decode("ascii").isprintable()


@given(st.text(st.sampled_from('aZ09-+_." '), max_size=8), st.sampled_from(["", " "]))
def test_a_boundary_is_what_a_mime_library_reads(text: str, space: str) -> None:
    header = EmailMessage()
    header["content-type"] = content_type = f"multipart/mixed;{space}boundary={text}"
    assume(boundary := header.get_boundary())
    assert boundary_of(content_type) == str(boundary).encode()


def test_a_part_that_a_mime_library_encoded_is_refused_and_not_stored_as_text(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, bool]] = [("binary", True), ("8bit", True), ("7BIT", True), ("base64", False)]
    for coding, stored in cases:
        with subtests.test(coding=coding, stored=stored):
            head = f"x-oms-h-destination: a\r\ncontent-transfer-encoding: {coding}\r\n\r\n"
            raw = b"--b\r\n%b\r\n--b--\r\n" % (head.encode() + b"aGVsbG8=")
            (message,) = run_at_once(decode(raw, b"b", 10, 1000))
            assert isinstance(message, Message) is stored
