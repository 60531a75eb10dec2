"""The cases of h2spec 2.6.0 for framing, stream states, flow control and header compression, as frames.

h2spec is a program in Go that cannot be built everywhere (see test_h2spec.py); these cases always run. A section is one
of RFC 7540, as h2spec names it, or with an h of RFC 7541. The test holds stream 1 open; the cases use the others.
"""

from typing import Final, NamedTuple

from h2.errors import ErrorCodes

from tests.server.raw_frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PRIORITIZED,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    UNKNOWN,
    WHOLE,
    WINDOW_UPDATE,
    block,
    frame,
    number,
    request,
    setting,
)

PROTOCOL, FLOW, CLOSED = ErrorCodes.PROTOCOL_ERROR, ErrorCodes.FLOW_CONTROL_ERROR, ErrorCodes.STREAM_CLOSED
SIZE, COMPRESSION, REFUSED = ErrorCodes.FRAME_SIZE_ERROR, ErrorCodes.COMPRESSION_ERROR, ErrorCodes.REFUSED_STREAM

GET: Final = frame(HEADERS, WHOLE, 3, request())
"""A whole request."""
HOLD: Final = frame(HEADERS, WHOLE, 3, request("/hold"))
"""A request that is not answered: its stream is half-closed (remote)."""
POST: Final = frame(HEADERS, END_HEADERS, 3, request(method="POST"))
"""A request whose body is to come."""
BEGUN: Final = frame(HEADERS, END_STREAM, 3, request())
"""A request whose header block is to go on."""
STATIC: Final = b"\x82\x86\x04\x05/size\x41\x01a"
"""A request that uses the static table."""


class Case(NamedTuple):
    """What is sent, after an answer to `GET` if `after_answer`; no codes: the server must go on."""

    section: str
    what: str
    sent: bytes
    codes: tuple[ErrorCodes, ...] = ()
    after_answer: bool = False


def malformed(*fields: tuple[str, str]) -> bytes:
    return frame(HEADERS, WHOLE, 3, block(*fields))


def _pseudo(**given: str) -> list[tuple[str, str]]:
    return [(f":{name}", value) for name, value in given.items()]


ACCEPTED: Final = (
    Case("4.1", "a frame of an unknown type", frame(UNKNOWN, 0xFF, 0, b"?")),
    Case("4.1", "undefined flags", frame(PING, 0x16, 0, b"12345678")),
    Case("4.1", "the reserved bit", frame(PING, 0, 1 << 31, b"12345678")),
    Case("4.2", "DATA of the greatest size", POST + frame(DATA, END_STREAM, 3, b"x" * 16_384)),
    Case("5.1", "PRIORITY for an idle stream", frame(PRIORITY, 0, 5, number(0) + b"\x0f")),
    Case("5.1", "WINDOW_UPDATE after the answer", frame(WINDOW_UPDATE, 0, 3, number(1)), after_answer=True),
    Case("5.1", "RST_STREAM after the answer", frame(RST_STREAM, 0, 3, number(0)), after_answer=True),
    Case("6.1", "padding", POST + frame(DATA, END_STREAM | PADDED, 3, b"\x06hello" + bytes(6))),
    Case("6.2", "padding", frame(HEADERS, WHOLE | PADDED, 3, b"\x06" + request() + bytes(6))),
    Case("6.2", "a priority", frame(HEADERS, WHOLE | PRIORITIZED, 3, number(0) + b"\x0f" + request())),
    Case("6.5.2", "an unknown setting", frame(SETTINGS, payload=setting(0xFF, 1))),
    Case("6.5.3", "a setting twice", frame(SETTINGS, payload=setting(4, 1) + setting(4, 100)) + GET),
    Case("6.7", "an answer to no PING", frame(PING, ACK, 0, b"invalid!")),
    Case("7", "RST_STREAM with an unknown code", HOLD + frame(RST_STREAM, 0, 3, number(0xFF))),
    Case("8.1", "trailers", POST + frame(DATA, 0, 3, b"x" * 50) + frame(HEADERS, WHOLE, 3, block(("x-a", "b")))),
    Case(
        "6.10",
        "several CONTINUATION",
        frame(HEADERS, END_STREAM, 3, request()[:9])
        + frame(CONTINUATION, 0, 3, request()[9:20])
        + frame(CONTINUATION, END_HEADERS, 3, request()[20:]),
    ),
    Case("h2.3", "a field of the static table", frame(HEADERS, WHOLE, 3, STATIC)),
    Case("h6.2", "a field is indexed and used", frame(HEADERS, WHOLE, 3, STATIC + b"\x40\x01a\x01b\xbe")),
    Case("h6.3", "a smaller table", frame(HEADERS, WHOLE, 3, b"\x20" + request())),
)

STREAM_ERRORS: Final = (
    Case("5.1", "DATA when half-closed", HOLD + frame(DATA, END_STREAM, 3, b"test"), (CLOSED,)),
    Case("5.1", "HEADERS when half-closed", HOLD + frame(HEADERS, WHOLE, 3, request()), (CLOSED,)),
    Case(
        "5.1", "DATA after RST_STREAM", HOLD + frame(RST_STREAM, 0, 3, number(8)) + frame(DATA, 1, 3, b"x"), (CLOSED,)
    ),
    Case("5.1", "DATA after the answer", frame(DATA, END_STREAM, 3, b"test"), (CLOSED,), after_answer=True),
    Case(
        "5.3.1",
        "a request that depends on itself",
        frame(HEADERS, 0x25, 3, number(3) + b"\xff" + request()),
        (PROTOCOL,),
    ),
    Case("6.9.1", "a window beyond 2^31 - 1", HOLD + 2 * frame(WINDOW_UPDATE, 0, 3, number(2**31 - 1)), (FLOW,)),
    Case("8.1", "HEADERS in a body", POST + frame(HEADERS, END_HEADERS, 3, block(("x-a", "b"))), (PROTOCOL,)),
    Case("8.1.2", "a name in upper case", frame(HEADERS, WHOLE, 3, request("/size", ("X-TEST", "a"))), (PROTOCOL,)),
    Case("8.1.2.1", "an unknown pseudo-field", frame(HEADERS, WHOLE, 3, request("/size", (":test", "a"))), (PROTOCOL,)),
    Case(
        "8.1.2.1",
        "the pseudo-field of a response",
        frame(HEADERS, WHOLE, 3, request("/size", (":status", "200"))),
        (PROTOCOL,),
    ),
    Case(
        "8.1.2.1", "a pseudo-field in trailers", POST + frame(HEADERS, WHOLE, 3, block((":method", "a"))), (PROTOCOL,)
    ),
    Case(
        "8.1.2.1",
        "a pseudo-field at the end",
        malformed(*_pseudo(method="GET", scheme="http"), ("a", "b"), (":path", "/size")),
        (PROTOCOL,),
    ),
    Case(
        "8.1.2.2",
        "a field of the connection",
        frame(HEADERS, WHOLE, 3, request("/size", ("connection", "keep-alive"))),
        (PROTOCOL,),
    ),
    Case(
        "8.1.2.2",
        "te other than trailers",
        frame(HEADERS, WHOLE, 3, request("/size", ("te", "trailers, deflate"))),
        (PROTOCOL,),
    ),
    Case("8.1.2.3", "an empty path", malformed(*_pseudo(method="GET", scheme="http", path="")), (PROTOCOL,)),
    Case("8.1.2.3", "no method", malformed(*_pseudo(scheme="http", path="/size")), (PROTOCOL,)),
    Case("8.1.2.3", "no scheme", malformed(*_pseudo(method="GET", path="/size")), (PROTOCOL,)),
    Case("8.1.2.3", "no path", malformed(*_pseudo(method="GET", scheme="http")), (PROTOCOL,)),
    Case("8.1.2.3", "two methods", frame(HEADERS, WHOLE, 3, block((":method", "GET")) + request()), (PROTOCOL,)),
    Case("8.1.2.3", "two schemes", frame(HEADERS, WHOLE, 3, block((":scheme", "http")) + request()), (PROTOCOL,)),
    Case("8.1.2.3", "two paths", frame(HEADERS, WHOLE, 3, block((":path", "/size")) + request()), (PROTOCOL,)),
    Case(
        "8.1.2.6",
        "a body that is too long",
        frame(HEADERS, END_HEADERS, 3, request("/hold", ("content-length", "1"), method="POST"))
        + frame(DATA, END_STREAM, 3, b"test"),
        (PROTOCOL,),
    ),
    Case(
        "8.1.2.6",
        "a body that is too short",
        frame(HEADERS, END_HEADERS, 3, request("/hold", ("content-length", "9"), method="POST"))
        + frame(DATA, 0, 3, b"test")
        + frame(DATA, END_STREAM, 3, b"test"),
        (PROTOCOL,),
    ),
    Case(
        "8.2.1",
        "a value with a line break",
        frame(HEADERS, WHOLE, 3, request("/size", ("a", "b\r\nc: d"))),
        (PROTOCOL,),
    ),
)

CONNECTION_ERRORS: Final = (
    Case("4.2", "DATA that is too large", POST + frame(DATA, END_STREAM, 3, b"x" * 65_537), (SIZE,)),
    Case("4.2", "HEADERS that are too large", frame(HEADERS, WHOLE, 3, bytes(65_537)), (SIZE,)),
    Case(
        "4.3",
        "a header block that cannot be decoded",
        frame(HEADERS, WHOLE, 3, b"\xff\xff\xff\xff\xff"),
        (COMPRESSION,),
    ),
    Case("4.3", "PRIORITY in a header block", BEGUN + frame(PRIORITY, 0, 3, number(0) + b"\x0f"), (PROTOCOL,)),
    Case("4.3", "HEADERS in a header block", BEGUN + frame(HEADERS, WHOLE, 5, request()), (PROTOCOL,)),
    Case("5.1", "DATA for an idle stream", frame(DATA, END_STREAM, 3, b"test"), (PROTOCOL,)),
    Case("5.1", "WINDOW_UPDATE for an idle stream", frame(WINDOW_UPDATE, 0, 3, number(1)), (PROTOCOL,)),
    Case("5.1", "CONTINUATION for an idle stream", frame(CONTINUATION, END_HEADERS, 3, request()), (PROTOCOL,)),
    Case(
        "5.1",
        "CONTINUATION when half-closed",
        HOLD + frame(CONTINUATION, END_HEADERS, 3, request()),
        (PROTOCOL, CLOSED),
    ),
    Case("5.1", "HEADERS after the answer", frame(HEADERS, WHOLE, 3, request()), (CLOSED,), after_answer=True),
    Case(
        "5.1",
        "CONTINUATION after the answer",
        frame(CONTINUATION, 4, 3, request()),
        (PROTOCOL, CLOSED),
        after_answer=True,
    ),
    Case("5.1.1", "an even stream", frame(HEADERS, WHOLE, 4, request()), (PROTOCOL,)),
    Case("5.1.1", "a lower stream", frame(HEADERS, WHOLE, 5, request()) + GET, (PROTOCOL,)),
    Case("5.5", "an unknown frame in a header block", BEGUN + frame(UNKNOWN, 0, 0, b"?"), (PROTOCOL,)),
    Case("6.1", "DATA for stream 0", frame(DATA, END_STREAM, 0, b"test"), (PROTOCOL,)),
    Case("6.1", "more padding than DATA", POST + frame(DATA, END_STREAM | PADDED, 3, b"\x06test"), (PROTOCOL,)),
    Case("6.2", "HEADERS for stream 0", frame(HEADERS, WHOLE, 0, request()), (PROTOCOL,)),
    Case("6.2", "more padding than HEADERS", frame(HEADERS, WHOLE | PADDED, 3, b"\xff" + request()), (PROTOCOL,)),
    Case("6.3", "PRIORITY for stream 0", frame(PRIORITY, 0, 0, number(0) + b"\x0f"), (PROTOCOL,)),
    Case("6.4", "RST_STREAM for stream 0", frame(RST_STREAM, 0, 0, number(8)), (PROTOCOL,)),
    Case("6.4", "RST_STREAM for an idle stream", frame(RST_STREAM, 0, 3, number(8)), (PROTOCOL,)),
    Case("6.4", "a short RST_STREAM", HOLD + frame(RST_STREAM, 0, 3, b"\0\0\0"), (SIZE,)),
    Case("6.5", "an acknowledgement with settings", frame(SETTINGS, ACK, 0, setting(3, 1)), (SIZE, PROTOCOL)),
    Case("6.5", "SETTINGS for a stream", frame(SETTINGS, 0, 1, setting(3, 1)), (PROTOCOL,)),
    Case("6.5", "half a setting", frame(SETTINGS, 0, 0, b"\0\x03\0"), (SIZE,)),
    Case("6.5.2", "ENABLE_PUSH of 2", frame(SETTINGS, payload=setting(2, 2)), (PROTOCOL,)),
    Case("6.5.2", "a window of 2^31", frame(SETTINGS, payload=setting(4, 1 << 31)), (FLOW,)),
    Case("6.5.2", "frames of 16,383 bytes", frame(SETTINGS, payload=setting(5, 16_383)), (PROTOCOL,)),
    Case("6.5.2", "frames of 2^24 bytes", frame(SETTINGS, payload=setting(5, 1 << 24)), (PROTOCOL,)),
    Case("6.7", "PING for a stream", frame(PING, 0, 1, bytes(8)), (PROTOCOL,)),
    Case("6.7", "a short PING", frame(PING, 0, 0, bytes(6)), (SIZE,)),
    Case("6.8", "GOAWAY for a stream", frame(GOAWAY, 0, 1, bytes(8)), (PROTOCOL,)),
    Case("6.9", "an increment of 0", frame(WINDOW_UPDATE, payload=number(0)), (PROTOCOL,)),
    Case("6.9", "a short WINDOW_UPDATE", frame(WINDOW_UPDATE, payload=b"\0\0\1"), (SIZE,)),
    Case(
        "6.9.1",
        "a window of the connection beyond 2^31 - 1",
        2 * frame(WINDOW_UPDATE, payload=number(2**31 - 1)),
        (FLOW,),
    ),
    Case(
        "6.9.1",
        "more DATA than the window",
        POST.replace(b"/size", b"/hold") + 6 * frame(DATA, 0, 3, b"x" * 16_384),
        (FLOW,),
    ),
    Case(
        "6.10",
        "another frame after CONTINUATION",
        BEGUN + frame(CONTINUATION, 0, 3) + frame(DATA, 1, 3, b"x"),
        (PROTOCOL,),
    ),
    Case("6.10", "CONTINUATION for stream 0", BEGUN + frame(CONTINUATION, END_HEADERS, 0, request()), (PROTOCOL,)),
    Case(
        "6.10", "CONTINUATION after the end", HOLD + frame(CONTINUATION, END_HEADERS, 3, request()), (PROTOCOL, CLOSED)
    ),
    Case(
        "6.10", "CONTINUATION after DATA", POST + frame(DATA, 0, 3, b"x" * 50) + frame(CONTINUATION, 4, 3), (PROTOCOL,)
    ),
    Case("8.2", "PUSH_PROMISE", frame(PUSH_PROMISE, END_HEADERS, 1, number(4) + request()), (PROTOCOL,)),
    Case("h2.3.3", "an index beyond the tables", frame(HEADERS, WHOLE, 3, request() + b"\xc6"), (COMPRESSION,)),
    Case("h2.3.3", "a name beyond the tables", frame(HEADERS, WHOLE, 3, request() + b"\x7f\x40\x01a"), (COMPRESSION,)),
    Case("h4.2", "a table size at the end", frame(HEADERS, WHOLE, 3, request() + b"\x20"), (COMPRESSION,)),
    Case(
        "h5.2",
        "padding of more than 7 bits",
        frame(HEADERS, WHOLE, 3, request() + b"\0\x01a\x82\x1f\xff"),
        (COMPRESSION,),
    ),
    Case("h5.2", "padding with zeros", frame(HEADERS, WHOLE, 3, request() + b"\0\x01a\x81\x18"), (COMPRESSION,)),
    Case(
        "h5.2", "EOS in a string", frame(HEADERS, WHOLE, 3, request() + b"\0\x01a\x84\xff\xff\xff\xff"), (COMPRESSION,)
    ),
    Case("h6.1", "the index 0", frame(HEADERS, WHOLE, 3, request() + b"\x80"), (COMPRESSION,)),
    Case(
        "h6.3", "a table larger than allowed", frame(HEADERS, WHOLE, 3, b"\x3f\xe1\xff\x03" + request()), (COMPRESSION,)
    ),
)
