"""The three framings, each read back by a reader that is not ours."""

import email.parser
import email.policy
import json
from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import BodyInvalid, HeaderRepeated, NotAcceptable, Rejected
from bridge.long_work import run_at_once
from bridge.message import LONG_MAX, Message
from bridge.wire import headers, jsonform, multipart
from bridge.wire.stream_framings import (
    EventStreamFraming,
    Framing,
    MultipartFraming,
    NdjsonFraming,
    StreamEnd,
    StreamMessage,
    choose_framing,
    decode_line,
    decode_lines,
    encode_line,
)
from tests.unit.strategies import broker_messages, messages, refusal

BOUNDARY = b"0123456789abcdef0123456789abcdef"
ID = "00ff00ff00ff00ff-7"

receipts = st.tuples(st.text("0123456789abcdef-", min_size=1, max_size=40), st.integers(0, LONG_MAX))
lines = st.builds(
    lambda message, leased: StreamMessage(message, *leased), messages(), st.one_of(st.just((None, 0)), receipts)
).filter(lambda line: BOUNDARY not in line.message.body)
ends = st.builds(StreamEnd, st.text(max_size=20), st.one_of(st.none(), st.text(max_size=200)))

MESSAGE = Message("orders", b"body")
LEASED = StreamMessage(MESSAGE, "r-1", 17)
SETTLED = StreamMessage(MESSAGE, None, 0)


def written(framing: Framing, stream: list[StreamMessage], end: StreamEnd | None) -> bytes:
    """Write a whole stream; without an end it is one that was broken off."""
    pieces = [framing.opening, framing.messages((ID, line) for line in stream)]
    return b"".join(pieces) + (b"" if end is None else framing.end(end))


def dispatched(raw: bytes) -> list[tuple[str, str, str]]:
    """Read an event stream as "9.2.6 Interpreting an event stream" of the HTML standard says: (event, data, id)."""
    text = raw.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    found: list[tuple[str, str, str]] = []
    kind, data, last_id = "", "", ""
    *whole, _unfinished = text.split("\n")
    for each in whole:
        field, _, value = each.partition(":")
        value = value.removeprefix(" ")
        if not each:
            if data:
                found.append((kind or "message", data.removesuffix("\n"), last_id))
            kind, data = "", ""
        elif field == "event":
            kind = value
        elif field == "data":
            data += value + "\n"
        elif field == "id" and "\0" not in value:
            last_id = value
    return found


# Lines


@given(st.one_of(lines, ends))
def test_a_line_comes_back_as_it_was(line: StreamMessage | StreamEnd) -> None:
    raw = encode_line(line)
    assert raw.isascii()
    assert b"\n" not in raw
    assert b"\r" not in raw
    assert decode_line(raw) == line


@given(st.lists(lines, max_size=4), ends)
def test_lines_are_json_one_after_the_other(stream: list[StreamMessage], end: StreamEnd) -> None:
    *items, last = [json.loads(each) for each in written(NdjsonFraming(), stream, end).splitlines()]
    assert last == {"end": end.reason} | ({"detail": end.detail} if end.detail is not None else {})
    assert [b64decode(item["data"]) for item in items] == [line.message.body for line in stream]
    for item, line in zip(items, stream, strict=True):
        assert item["header"]["destination"] == line.message.destination
        assert item.get("receipt") == line.receipt
        assert item.get("leaseUntil", 0) == line.lease_until


def test_a_settled_message_has_no_receipt_and_no_lease() -> None:
    assert set(json.loads(encode_line(SETTLED))) == set(json.loads(jsonform.encode(MESSAGE)))
    assert set(json.loads(encode_line(LEASED))) == {*json.loads(jsonform.encode(MESSAGE)), "receipt", "leaseUntil"}


@given(st.lists(lines, max_size=4))
def test_lines_are_encoded_as_each_of_them_is(stream: list[StreamMessage]) -> None:
    encoded = NdjsonFraming().messages([(ID, line) for line in stream])
    assert encoded == b"".join(encode_line(line) + b"\n" for line in stream)


@given(st.lists(lines, max_size=4), st.lists(ends, max_size=1))
def test_lines_are_decoded_as_each_of_them_is(some: list[StreamMessage], end: list[StreamEnd]) -> None:
    expected: list[StreamMessage | StreamEnd] = [*some, *end]
    assert list(decode_lines(b"".join(encode_line(line) + b"\n" for line in expected))) == expected


def test_messages_before_a_line_that_is_none_are_decoded() -> None:
    decoded = iter(decode_lines(b"%b\n\nnothing\n" % encode_line(LEASED)))
    assert next(decoded) == LEASED
    assert refusal(lambda: next(decoded)) is not None


@given(st.binary(max_size=80))
def test_no_bytes_raise_anything_but_the_error_tree(raw: bytes) -> None:
    error = refusal(lambda: decode_line(raw))
    assert error is None or error.detail.isascii()


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
members = st.sampled_from(("end", "detail", "receipt", "leaseUntil", "header", "data", "version", "message"))


@given(st.dictionaries(members, json_values, max_size=4))
def test_no_json_raises_anything_but_the_error_tree(item: dict[str, object]) -> None:
    refusal(lambda: decode_line(json.dumps(item).encode()))


def test_a_line_that_is_none_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [
        b"",
        b"[]",
        b"7",
        b'"end"',
        b'{"end": 7}',
        b'{"end": null}',
        b'{"end": "waitmills", "detail": 1.5}',
        b'{"header": {"destination": "a"}, "receipt": 7}',
        b'{"header": {"destination": "a"}, "receipt": "r", "leaseUntil": "17"}',
        b'{"header": {"destination": "a"}, "receipt": "r", "leaseUntil": 1.5}',
        b'{"header": {"destination": "a"}, "receipt": "r", "leaseUntil": true}',
        b"\xff\xfe{",
        b"[" * 100_000,
        b'{"end": ' + b"9" * 5000 + b"}",
    ]
    for raw in cases:
        with subtests.test(raw=raw), pytest.raises(BodyInvalid):
            decode_line(raw)


def test_a_line_that_names_a_member_twice_is_refused(subtests: pytest.Subtests) -> None:
    for member in ("end", "receipt", "leaseUntil", "header"):
        with subtests.test(member=member), pytest.raises((BodyInvalid, HeaderRepeated)):
            decode_line(b'{"%b": "a", "%b": "b"}' % (member.encode(), member.encode()))


def test_a_line_without_a_destination_is_no_message() -> None:
    for raw in (b"{}", encode_line(LEASED).replace(b'"destination":"orders"', b"")):
        with pytest.raises(Rejected, match="destination"):
            decode_line(raw)


def test_members_of_a_newer_bridge_are_ignored() -> None:
    raw = encode_line(LEASED).replace(b'"destination":"orders"', b'"destination":"orders","new":[1]')
    assert decode_line(raw[:-1] + b',"newer":{"a":null}}') == LEASED


# Events


@given(st.lists(lines, max_size=4), ends)
def test_events_are_what_the_html_standard_reads(stream: list[StreamMessage], end: StreamEnd) -> None:
    *events, last = dispatched(written(EventStreamFraming(), stream, end))
    assert (last[0], decode_line(last[1].encode())) == ("end", end)
    assert [(kind, event_id) for kind, _, event_id in events] == [("message", ID)] * len(stream)
    assert [decode_line(data.encode()) for _, data, _ in events] == stream


def test_an_event_is_whole_before_the_next_one_comes() -> None:
    assert len(dispatched(written(EventStreamFraming(), [LEASED, LEASED], None))) == 2


def test_the_opening_is_no_event_and_says_when_to_come_back() -> None:
    assert dispatched(EventStreamFraming.opening) == []
    assert EventStreamFraming.opening.startswith(b"retry: ")


# Parts


@given(st.lists(lines, min_size=1, max_size=4))
def test_parts_are_what_a_mail_reader_reads(stream: list[StreamMessage]) -> None:
    framing = MultipartFraming(BOUNDARY)
    raw = b"content-type: " + framing.content_type + b"\r\n\r\n" + written(framing, stream, StreamEnd("waitmills"))
    document = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(raw)
    assert document.is_multipart()
    assert document.get_content_type() == "multipart/mixed"
    assert not document.defects
    parts = document.get_payload()
    assert isinstance(parts, list)
    for part, line in zip(parts, stream, strict=True):
        assert int(part["content-length"]) == len(line.message.body)
        assert part["x-oms-receipt"] == line.receipt
        assert part["x-oms-leaseuntil"] == (None if line.receipt is None else str(line.lease_until))


@given(st.lists(lines, min_size=1, max_size=4))
def test_parts_are_messages_in_the_produce_form(stream: list[StreamMessage]) -> None:
    raw = written(MultipartFraming(BOUNDARY), stream, StreamEnd("waitmills"))
    parts = run_at_once(multipart.decode(raw, BOUNDARY, 10, 1 << 20))
    assert parts == [headers.parse(headers.encode(line.message)).message(line.message.body) for line in stream]


def test_a_part_is_whole_before_the_next_one_comes() -> None:
    framing = MultipartFraming(BOUNDARY)
    first = framing.opening + framing.messages([("", LEASED)])
    assert first.endswith(b"\r\n--" + BOUNDARY)
    assert run_at_once(multipart.decode(first + multipart.CLOSING, BOUNDARY, 10, 1 << 20)) == [MESSAGE]


def test_a_stream_without_messages_has_an_end_too() -> None:
    assert written(MultipartFraming(BOUNDARY), [], StreamEnd("waitmills")) == b"--" + BOUNDARY + b"--\r\n"


def test_parts_that_end_by_an_error_lack_their_closing_delimiter() -> None:
    assert MultipartFraming(BOUNDARY).end(StreamEnd("backend-unavailable", "gone")) == b""
    for why in ("waitmills", "maxmessages", "draining"):
        assert MultipartFraming(BOUNDARY).end(StreamEnd(why)) == b"--\r\n"


# What a broker hands us


@given(st.lists(broker_messages(), min_size=1, max_size=3))
def test_no_message_of_a_broker_breaks_a_framing(found: list[Message]) -> None:
    stream = [StreamMessage(message, "r-1", 17) for message in found if BOUNDARY not in message.body]
    assert len(written(NdjsonFraming(), stream, None).split(b"\n")) == len(stream) + 1
    assert [kind for kind, _, _ in dispatched(written(EventStreamFraming(), stream, None))] == ["message"] * len(stream)
    if stream:
        raw = written(MultipartFraming(BOUNDARY), stream, StreamEnd("waitmills"))
        assert len(run_at_once(multipart.decode(raw, BOUNDARY, 9, 1 << 20))) == len(stream)


# Which of them


def test_accept_chooses_the_framing(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes | None, type]] = [
        (None, MultipartFraming),
        (b"*/*", MultipartFraming),
        (b"multipart/*", MultipartFraming),
        (b"multipart/mixed", MultipartFraming),
        (b"application/x-ndjson", NdjsonFraming),
        (b"application/*", NdjsonFraming),
        (b"APPLICATION/X-NDJSON", NdjsonFraming),
        (b"text/event-stream", EventStreamFraming),
        (b"text/*", EventStreamFraming),
        (b"text/event-stream; charset=utf-8", EventStreamFraming),
        (b"text/event-stream, application/x-ndjson", NdjsonFraming),  # equals: in the order of the profile
        (b"text/event-stream, application/x-ndjson;q=0.9", EventStreamFraming),
        (b"text/event-stream;q=0.5 , application/x-ndjson ; q=0.51", NdjsonFraming),
        (b"text/event-stream;q=0.001", EventStreamFraming),
        (b"text/event-stream;Q=1.000, */*;q=0.999", EventStreamFraming),
        (b"multipart/mixed;q=0, */*", NdjsonFraming),
        (b"multipart/mixed;q=0, application/*;q=0.0, */*;q=0.1", EventStreamFraming),
        (b"*/*, multipart/*;q=0.1, application/x-ndjson;q=0.2", EventStreamFraming),
        (b"application/x-ndjson;q=0, application/*", NotAcceptable),
        (b"text/html, application/xhtml+xml, */*;q=0.8", MultipartFraming),
        (
            b"text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2",
            MultipartFraming,
        ),  # Java 19's HttpURLConnection
        (b"text/html, , ,text/event-stream,", EventStreamFraming),
        (b"*/*;q=0", NotAcceptable),
        (b"text/event-stream;q=0", NotAcceptable),
        (b"application/json", NotAcceptable),
        (b"text/html", NotAcceptable),
        (b"text/event-stream;q=1.1", NotAcceptable),
        (b"text/event-stream;q=nan", NotAcceptable),
        (b"text/event-stream;q=.", NotAcceptable),
        (b"text/event-stream;q=-1", NotAcceptable),
        (b"text/event-stream;q=", NotAcceptable),
        (b"\xff\xfe/\0", NotAcceptable),
    ]
    for accept, chosen in cases:
        with subtests.test(accept=accept, chosen=chosen):
            if chosen is NotAcceptable:
                with pytest.raises(
                    NotAcceptable, match=r"multipart/mixed, application/x-ndjson, text/event-stream"
                ) as caught:
                    choose_framing(accept, BOUNDARY)
                assert caught.value.detail.isascii()
            else:
                framing = choose_framing(accept, BOUNDARY)
                assert type(framing) is chosen


@given(st.one_of(st.binary(max_size=60), st.text("*/;,=q.01 \ttexvn-smraplicodj", max_size=60).map(str.encode)))
def test_no_accept_raises_anything_but_the_error_tree(accept: bytes) -> None:
    error = refusal(lambda: choose_framing(accept, BOUNDARY))
    assert error is None or isinstance(error, NotAcceptable)


def test_the_boundary_is_announced_and_used() -> None:
    framing = choose_framing(None, BOUNDARY)
    assert framing.content_type == b"multipart/mixed; boundary=" + BOUNDARY
    assert multipart.boundary_of(framing.content_type.decode()) == BOUNDARY
    assert framing.opening == b"--" + BOUNDARY
