"""How the tests of the doors ask, and what every refusal must look like."""

import json
from typing import Any, Final
from uuid import uuid4

from bridge.wire.stream_framings import decode_message
from tests.conformance.frames import Answer, Frames

VERSION: Final = (b"x-oms-version", b"1.0.0")
RETRY: Final = {429, 503}

Pair = tuple[bytes, bytes]


def fresh() -> bytes:
    """Return a destination that no other test uses."""
    return b"http-%b" % uuid4().hex.encode("ascii")


def producing(destination: bytes, *more: Pair) -> list[Pair]:
    """Return the headers of a produce."""
    return [VERSION, (b"x-oms-h-destination", destination), *more]


def pulling(destination: bytes, *more: Pair, group: bytes = b"g", ack: bytes = b"true") -> list[Pair]:
    """Return the headers of a pull."""
    return [VERSION, (b"x-oms-source", destination), (b"x-oms-consumerid", group), (b"x-oms-ack", ack), *more]


def post(frames: Frames, pairs: list[Pair], body: bytes = b"", path: str = "/v1/messages") -> Answer:
    """Send a POST."""
    return frames.ask("POST", path, pairs, body)


def pull(frames: Frames, destination: bytes, *more: Pair, group: bytes = b"g") -> Answer:
    """Send a pull under ack."""
    return frames.ask("GET", "/v1/messages", pulling(destination, *more, group=group))


def store(frames: Frames, destination: bytes, body: bytes = b"good", *more: Pair) -> None:
    """Store a message that must be stored."""
    answer = post(frames, producing(destination, *more), body)
    assert answer.status == 200, answer


def stored(frames: Frames, destination: bytes) -> list[bytes]:
    """Return the bodies of everything stored in a destination; none of it may have been delivered before."""
    bodies = []
    while (answer := pull(frames, destination, group=b"inspector")).status == 200:
        assert answer.headers.get(b"x-oms-h-deliverycount", b"1") == b"1"
        bodies.append(body_of(answer))
    assert answer.status == 204, answer
    return bodies


def body_of(answer: Answer) -> bytes:
    """Return the body of a pulled message, also of one that is sent in the JSON form."""
    return decode_message(answer.body).body if b"x-oms-form" in answer.headers else answer.body


def refusal(answer: Answer, status: int, code: str, *said: str) -> dict[str, Any]:
    """Make sure that this is the problem document of that code, and that its sentence says what it must."""
    assert answer.status == status, answer
    assert answer.ended in {"complete", "reset"}, answer
    return problem(answer, code, *said)


def problem(answer: Answer, code: str | None = None, *said: str) -> dict[str, Any]:
    """Make sure that this is a problem document, whole and without contradiction."""
    headers = answer.headers
    assert headers[b"content-type"] == b"application/problem+json", answer
    assert headers[b"cache-control"] == b"no-store"
    assert headers.get(b"content-length") == b"%d" % len(answer.body)
    document: dict[str, Any] = json.loads(answer.body)
    assert document["status"] == answer.status
    assert headers[b"x-oms-error"].decode() == document["code"]
    assert code in (None, document["code"]), document
    assert document["type"].endswith(document["code"])
    assert document["title"]
    detail = document["detail"]
    assert detail.isascii(), detail
    assert detail.isprintable(), detail
    assert len(detail) < 1000, detail
    for part in said:
        assert part in detail, detail
    assert (b"retry-after" in headers) == (answer.status in RETRY)
    assert headers.get(b"x-oms-retry-safe", b"false") == str(document["retrySafe"]).lower().encode()
    assert document["retrySafe"] == (answer.status == 503)
    return document
