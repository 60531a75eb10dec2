"""Push streams: the three framings, each read by a general reader."""

import base64
import email.message
import email.parser
import email.policy
import gzip
import json

import httpx
import pytest

from .conversation import Conversation, Pairs, refused
from .streaming import EVENTS, LINES, PARTS, pushing

pytestmark = pytest.mark.wire

ACCEPT = [
    (None, PARTS),
    ("*/*", PARTS),
    ("multipart/mixed", PARTS),
    ("application/x-ndjson", LINES),
    ("text/event-stream", EVENTS),
    ("text/*", EVENTS),
    ("application/x-ndjson;q=0.5, text/event-stream;q=0.7, multipart/mixed;q=0.1", EVENTS),
    ("multipart/mixed;q=0, */*;q=0.1", LINES),
    ("text/html, application/xhtml+xml, */*;q=0.8", PARTS),
]


async def stream(talk: Conversation, accept: str | None, pairs: Pairs = (), **params: object) -> httpx.Response:
    """Return a whole stream, or whatever the bridge answers instead."""
    named = {"version": "1.0.0", "source": talk.destination, "consumerid": talk.group, "waitmills": 0} | params
    headers = [(f"x-oms-{name}".encode(), str(value).encode()) for name, value in named.items()]
    headers += [(str(name).encode(), str(value).encode()) for name, value in pairs]
    if accept is None:
        del talk.http.headers["accept"]
    else:
        headers.append((b"accept", accept.encode()))
    return await talk.http.get("/v1/push", headers=headers)


def parts_of(answer: httpx.Response) -> list[tuple[dict[str, str], bytes]]:
    """Read a multipart answer as mail is read, but for the length of the bodies."""
    head = f"content-type: {answer.headers['content-type']}\r\n\r\n".encode()
    document = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + answer.content)
    assert isinstance(document, email.message.EmailMessage)
    assert not document.defects
    parts = []
    for part in document.iter_parts():
        body = part.get_payload(decode=True)
        assert isinstance(body, bytes)
        parts.append(({name.lower(): str(value) for name, value in part.items()}, body))
    return parts


def events_of(answer: httpx.Response) -> list[dict[str, str]]:
    """Read an event stream as the HTML standard says."""
    *events, rest = answer.text.split("\n\n")
    assert not rest
    return [{f: v.removeprefix(" ") for f, _, v in (line.partition(":") for line in e.split("\n"))} for e in events]


async def test_accept_chooses_the_framing(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > `Accept` chooses the framing: `multipart/mixed` (default: each part is one message in the produce form,
    > streamed), `application/x-ndjson`, or `text/event-stream`.
    """
    for accept, kind in ACCEPT:
        with subtests.test(str(accept)):
            answer = await stream(talk, accept)
            assert answer.status_code == 200
            assert answer.headers["content-type"].partition(";")[0] == kind


async def test_a_406_names_the_framings(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > `Accept` chooses the framing: `multipart/mixed` (default: each part is one message in the produce form,
    > streamed), `application/x-ndjson`, or `text/event-stream`.
    """
    await talk.produce(b"kept")
    for accept in ("text/html", "application/json", "*/*;q=0", "text/event-stream;q=0"):
        with subtests.test(accept):
            detail = refused(await stream(talk, accept), 406, "not-acceptable")
            assert all(kind in detail for kind in (PARTS, LINES, EVENTS))
    assert (await talk.take()).count == 1


async def test_parts_are_messages_in_the_produce_form(talk: Conversation) -> None:
    """
    > `Accept` chooses the framing: `multipart/mixed` (default: each part is one message in the produce form,
    > streamed), `application/x-ndjson`, or `text/event-stream`.
    """
    bodies = [b"", b"plain", bytes(range(256)), b"\r\n--\r\n\r\n"]
    for body in bodies:
        await talk.produce(body, [("x-oms-p-%4frder%49d", "7"), ("content-type", "text/x")], correlationid="c")
    answer = await stream(talk, None, ack="true", leasemills=500)
    parts = parts_of(answer)
    assert len(parts) == 4
    for (headers, body), expected in zip(sorted(parts, key=lambda p: p[1]), sorted(bodies), strict=True):
        assert int(headers["content-length"]) == len(expected)
        assert body == expected or b"\r" in expected or max(expected, default=0) > 127  # what mail does to them
        assert headers["x-oms-h-destination"] == talk.destination
        assert headers["x-oms-h-correlationid"] == "c"
        assert headers["x-oms-p-%4frder%49d"] == "7"
        assert headers["x-oms-h-deliverycount"] == "1"
        assert headers["content-type"] == "text/x"
        assert headers["x-oms-receipt"]
        assert int(headers["x-oms-leaseuntil"]) > 0
    for expected in bodies:
        assert b"\r\n\r\n" + expected + b"\r\n--" in answer.content


async def test_a_stream_of_parts_is_a_batch_that_can_be_produced(talk: Conversation) -> None:
    """
    > `Accept` chooses the framing: `multipart/mixed` (default: each part is one message in the produce form,
    > streamed), `application/x-ndjson`, or `text/event-stream`.
    """
    for number in range(3):
        await talk.produce(b"%d" % number, messagekey="k")
    answer = await stream(talk, PARTS)
    headers = {"x-oms-version": "1.0.0", "content-type": answer.headers["content-type"]}
    stored = await talk.http.post("/v1/messages", headers=headers, content=answer.content)
    assert (stored.status_code, len(stored.json())) == (200, 3), stored.text
    assert [taken.body for taken in await talk.take_all(3)] == [b"0", b"1", b"2"]


async def test_a_part_is_whole_before_the_next_one_comes(talk: Conversation) -> None:
    """
    > `Accept` chooses the framing: `multipart/mixed` (default: each part is one message in the produce form,
    > streamed), `application/x-ndjson`, or `text/event-stream`.
    """
    async with pushing(talk, PARTS) as push:
        boundary = (await push.head()).headers[b"content-type"].partition(b"boundary=")[2]
        size = 0
        for number in range(3):
            await talk.produce(b"%d" % number)
            while not push.frames.body_of(push.number)[size:].endswith(b"\r\n\r\n%d\r\n--%b" % (number, boundary)):
                assert push.frames.grows(push.number, len(push.frames.body_of(push.number)), 20)
            size = len(push.frames.body_of(push.number))


async def test_a_line_is_a_message_in_the_json_form_with_its_receipt(talk: Conversation) -> None:
    """
    > `Accept` chooses the framing: `multipart/mixed` (default: each part is one message in the produce form,
    > streamed), `application/x-ndjson`, or `text/event-stream`.
    """
    await talk.produce(b"\0\xff", [("x-oms-p-city*", "UTF-8''Z%C3%BCrich")], messagekey="k")
    answer = await stream(talk, LINES, ack="true", leasemills=300)
    line, end = answer.text.splitlines()
    item = json.loads(line)
    assert set(item) == {"version", "header", "extensionHeader", "properties", "data", "receipt", "leaseUntil"}
    assert item["header"]["destination"] == talk.destination
    assert (item["extensionHeader"]["messageKey"], item["extensionHeader"]["deliveryCount"]) == ("k", 1)
    assert item["properties"] == {"city": "Zürich"}
    assert base64.b64decode(item["data"]) == b"\0\xff"
    assert json.loads(end) == {"end": "waitmills"}


async def test_events_carry_the_same_lines(talk: Conversation) -> None:
    """
    > `Accept` chooses the framing: `multipart/mixed` (default: each part is one message in the produce form,
    > streamed), `application/x-ndjson`, or `text/event-stream`.
    """
    for number in range(3):
        await talk.produce(b"line\nbreak %d" % number, messagekey="k")
    opening, *events, end = events_of(await stream(talk, EVENTS))
    assert set(opening) == {"retry"}
    assert [base64.b64decode(json.loads(event["data"])["data"]) for event in events] == [
        b"line\nbreak %d" % number for number in range(3)
    ]
    assert len({event["id"] for event in events}) == 3
    assert (end["event"], json.loads(end["data"])) == ("end", {"end": "waitmills"})


async def test_a_stream_is_answered_over_http1_too(talk: Conversation) -> None:
    """
    > HTTP/1.1 is answered too, so that a plain `curl` works.
    """
    await talk.produce(b"by curl")
    async with httpx.AsyncClient(base_url=talk.http.base_url, trust_env=False, timeout=30) as http:
        plain = Conversation(http)
        plain.destination, plain.group = talk.destination, talk.group
        answer = await stream(plain, LINES)
    assert answer.http_version == "HTTP/1.1"
    assert len(answer.text.splitlines()) == 2


async def test_bodies_are_inflated_whatever_the_client_accepts(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > Compression is undone for a consumer that does not accept it.
    """
    for encoding in ("identity", "gzip"):
        with subtests.test(encoding):
            await talk.produce(gzip.compress(b"packed"), compression="gzip")
            answer = await stream(talk, LINES, [("accept-encoding", encoding)])
            item = json.loads(answer.text.splitlines()[0])
            assert base64.b64decode(item["data"]) == b"packed"
            assert "compression" not in item["header"]
