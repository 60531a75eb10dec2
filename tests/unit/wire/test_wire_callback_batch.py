"""The body of a batch in each form, and the results that an endpoint returns."""

import json

import pytest

from bridge.errors import NotAcceptable
from bridge.long_work import run_at_once
from bridge.message import Message
from bridge.wire import jsonform, multipart
from bridge.wire.callback_batch import FORMS, Result, choose_form, decode_results, encode_batch
from bridge.wire.stream_framings import StreamMessage, decode_line

MESSAGES = [
    Message("orders", b'{"id": 7}', {"Region": "Zürich"}, message_id="m-1", message_key="c12", delivery_count=1),
    Message("orders", bytes(range(256)), message_id="m-2", delivery_count=1, content_type="text/plain"),
    Message("orders", message_id="m-3", delivery_count=1),
]


def test_every_form_is_read_by_its_decoder() -> None:
    kind, body = encode_batch(MESSAGES, "application/json")
    assert (kind, run_at_once(jsonform.decode_array(body, 3))) == (b"application/json", MESSAGES)
    kind, body = encode_batch(MESSAGES, "application/x-ndjson")
    assert kind == b"application/x-ndjson"
    assert [decode_line(line) for line in body.splitlines()] == [StreamMessage(m, None, 0) for m in MESSAGES]
    assert body.endswith(b"}\n")
    kind, body = encode_batch(MESSAGES, "multipart/mixed")
    decoded = run_at_once(multipart.decode(body, multipart.boundary_of(kind.decode()), 3, 4096))
    assert [m._replace(content_type=None) for m in decoded if isinstance(m, Message)] == [
        m._replace(content_type=None) for m in MESSAGES
    ]
    assert body.count(b"content-length: ") == 3
    assert encode_batch(MESSAGES, "multipart/mixed")[0] != kind, "each body has its own boundary"


def test_accept_chooses_the_form() -> None:
    for accept, form in (
        (None, "multipart/mixed"),
        (b"*/*", "multipart/mixed"),
        (b"application/json", "application/json"),
        (b"application/*", "application/x-ndjson"),
        (b"application/x-ndjson;q=0.5, application/json", "application/json"),
    ):
        assert choose_form(accept) == form
    with pytest.raises(NotAcceptable, match="a batch of a callback is multipart/mixed, application/x-ndjson, appl"):
        choose_form(b"text/event-stream")
    assert FORMS[0] == "multipart/mixed"


def test_results_are_read() -> None:
    body = b'[{"status": 200}, {"status": 503, "retryAfter": 7, "more": []}, {"status": 599, "retryAfter": null}]'
    assert decode_results(body, 3, required=False) == [Result(200, None), Result(503, "7"), Result(599, None)]
    for other in (None, b"{}", b'{"status": 500}', b'"ok"', b"null"):
        assert decode_results(other, 3, required=False) is None
        with pytest.raises(ValueError, match="without an array of results"):
            decode_results(other, 3, required=True)


@pytest.mark.parametrize(
    "item",
    [1, None, [], {}, {"status": "200"}, {"status": 99}, {"status": 600}, {"status": 200.0}, {"status": True},
     {"status": 200, "retryAfter": "1"}, {"status": 503, "retryAfter": -1}, {"status": 503, "retryAfter": 1.5},
     {"status": 503, "retryAfter": True}],
)  # fmt: skip
def test_what_is_no_result(item: object) -> None:
    with pytest.raises(ValueError, match="with a result that is not an object with a status"):
        decode_results(json.dumps([item]).encode(), 1, required=False)


@pytest.mark.parametrize("body", [b"", b"[", b"\xff", b"[" * 100_000])
def test_what_is_not_json(body: bytes) -> None:
    with pytest.raises(ValueError, match="not JSON or is longer than 64 KiB"):
        decode_results(body, 1, required=False)


@pytest.mark.parametrize("count", [0, 2])
def test_another_number_of_results(count: int) -> None:
    with pytest.raises(ValueError, match=f"with {count} results for 1 messages"):
        decode_results(json.dumps([{"status": 200}] * count).encode(), 1, required=False)
