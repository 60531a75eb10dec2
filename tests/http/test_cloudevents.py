"""CloudEvents on running bridges, with the official SDK as producer and consumer."""

import gzip
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.message import Message as EmailMessage
from email.parser import BytesParser
from itertools import product
from typing import Any, Final

import httpx
import pytest
from cloudevents.core.bindings import http as sdk
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from tests.http.callback_endpoint import Endpoint, listed, register, wait_until
from tests.http.conftest import MOSTLY_HYPERCORN, Start
from tests.launch import Bridge

Event = Any
"""An event of the SDK."""
BINARY: Final = "application/cloudevents"
STRUCTURED: Final = "application/cloudevents+json"
BATCHED: Final = "application/cloudevents-batch+json"
PARENT: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def events(keys: str = "kkk") -> list[Event]:
    """Return one event for each kind of data."""
    contents: dict[str, Any] = {
        "application/json": {"n": 1.5, "text": "ü"},
        "text/plain": "Grüße\n",
        "image/png": b"\x89PNG\0\xff",
    }
    return [
        CloudEvent(
            {
                "id": f"id {number} %",
                "source": "/shop/ä",
                "type": "order.created",
                "subject": 'a "quoted" one',
                "partitionkey": keys[number],
                "traceparent": PARENT,
                "ours": "x",
                "datacontenttype": content_type,
            },
            data,
        )
        for number, (content_type, data) in enumerate(contents.items())
    ]


def same(found: Event, sent: Event) -> bool:
    """Whether an event has the attributes and the data of the other; times are kept to the millisecond."""
    attributes = {name: found.get_attributes().get(name) for name in sent.get_attributes() if name != "time"}
    apart = abs((found.get_time() - sent.get_time()).total_seconds())
    return bool(
        found.get_data() == sent.get_data()
        and attributes == {name: value for name, value in sent.get_attributes().items() if name != "time"}
        and apart < 0.001
    )


@pytest.fixture
def http(bridge: Bridge) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=bridge.url, http1=False, http2=True, trust_env=False, timeout=60) as client:
        yield client


def post(http: httpx.Client, name: str, message: sdk.HTTPMessage, query: str = "", **more: str) -> httpx.Response:
    """Produce by URL."""
    path = f"/v1/destinations/{name}/messages{query}"
    return http.post(path, headers=message.headers | more, content=message.body)


def take(http: httpx.Client, name: str, accept: str, group: str = "app", **more: str) -> httpx.Response:
    """Pull and acknowledge one message."""
    params = {"version": "1.0.0", "source": name, "consumerid": group, "ack": "true", "waitmills": "20000"}
    answer = http.get("/v1/messages", params=params, headers={"accept": accept, **more})
    assert answer.status_code == 200, answer.text
    settled = http.post("/v1/ack", params={"version": "1.0.0", "receipt": answer.headers["x-oms-receipt"]})
    assert settled.status_code == 204
    return answer


def event_of(answer: httpx.Response) -> Event:
    return sdk.from_http_event(sdk.HTTPMessage(dict(answer.headers), answer.content))


def test_an_event_of_the_sdk_comes_back_in_each_mode(http: httpx.Client, name: str) -> None:
    writers: tuple[Callable[[Event], sdk.HTTPMessage], ...] = (sdk.to_binary_event, sdk.to_structured_event)
    for number, (event, write, accept) in enumerate(product(events(), writers, (BINARY, STRUCTURED))):
        destination = f"{name}-{number}"  # another one, as the second event of one id would be a duplicate
        assert post(http, destination, write(event)).status_code == 200
        answer = take(http, destination, accept)
        assert same(event_of(answer), event)
        assert (answer.headers["content-type"] == STRUCTURED) is (accept == STRUCTURED)
        assert answer.headers["x-oms-version"] == "1.0.0"
        assert event_of(answer).get_attributes()["omsdestination"] == destination
        with_headers = {"x-oms-version": "1.0.0", "x-oms-h-destination": f"{destination}-again"}
        sent = write(event)
        stored = http.post("/v1/messages", headers=sent.headers | with_headers, content=sent.body)
        assert (stored.status_code, stored.headers["x-oms-h-messageid"]) == (200, event.get_id())
        as_message = take(http, f"{destination}-again", "*/*")
        assert as_message.headers["x-oms-p-type"] == "order.created"
        assert as_message.headers["x-oms-h-messagekey"] == "k"
        assert as_message.headers["traceparent"] == PARENT
        assert as_message.content == JSONFormat().write_data(event.get_data(), event.get_datacontenttype()) or (
            json.loads(as_message.content) == event.get_data()
        )


@MOSTLY_HYPERCORN
def test_a_batch_of_the_sdk_is_stored_event_by_event(http: httpx.Client, name: str) -> None:
    sent = events()
    body = b"[%b, {}]" % b",".join(sdk.to_structured_event(event).body for event in sent)
    batch = sdk.HTTPMessage({"content-type": f"{BATCHED}; charset=utf-8"}, body)
    answer = post(http, name, batch, "?priority=9")
    assert answer.status_code == 207
    results = answer.json()
    assert [result["status"] for result in results] == [200, 200, 200, 400]
    assert [result.get("messageId") for result in results[:3]] == [event.get_id() for event in sent]
    for event in sent:
        found = event_of(take(http, name, STRUCTURED))
        assert same(found, event)
        assert found.get_attributes()["omspriority"] == 9
    with_headers = {**batch.headers, "x-oms-version": "1.0.0"}
    missing = http.post("/v1/messages", headers=with_headers, content=body)
    assert (missing.status_code, missing.json()["code"]) == (400, "header-missing")
    named = http.post("/v1/messages", headers=with_headers | {"x-oms-h-destination": name}, content=b"[]")
    assert (named.status_code, named.json()) == (200, [])


@MOSTLY_HYPERCORN
def test_a_message_that_was_no_event_is_read_as_one(http: httpx.Client, name: str) -> None:
    headers = {"x-oms-p-%4frder%49d": "7", "x-oms-h-correlationid": "c", "content-type": "application/json"}
    message = sdk.HTTPMessage({"content-encoding": "gzip", **headers}, gzip.compress(b'{"a": 1}'))
    for accept in (BINARY, STRUCTURED):
        assert post(http, name, message).status_code == 200
        answer = take(http, name, accept, **{"accept-encoding": "gzip"})
        assert "content-encoding" not in answer.headers
        event = event_of(answer)
        assert event.get_source() == f"urn:openmessaging-bridge:destination:{name}"
        assert event.get_type() == "io.openmessaging.message"
        assert event.get_data() == {"a": 1}, "inflated"
        attributes = event.get_attributes()
        assert (attributes["omscorrelationid"], json.loads(attributes["omsproperties"])) == ("c", {"OrderId": "7"})


CONTENT_TYPES: Final = ("json", "", "*/*", "text / plain", "text/plain, application/json", "a/b/c")


def test_what_is_delivered_as_an_event_can_be_produced_again(
    start: Start, endpoint: Endpoint, name: str, subtests: pytest.Subtests
) -> None:
    """By pulls and callbacks, in each mode: the copy is the same message."""
    calling = start(**endpoint.settings())
    with httpx.Client(base_url=calling.url, trust_env=False, timeout=60) as http:
        for number, content_type in enumerate(CONTENT_TYPES):
            with subtests.test(content_type=content_type):
                source = f"{name}-{number}"
                headers = {"content-type": content_type, "x-oms-h-messagekey": "", "x-oms-h-traceid*": "UTF-8''a%0Ab"}
                assert post(http, source, sdk.HTTPMessage(headers, b'{"a": 1}')).status_code == 200
                for at, event in enumerate(delivered(http, calling, endpoint, source)):
                    copy = f"{source}-{at}"
                    answer = post(http, copy, event)
                    assert answer.status_code == 200, answer.text
                    found = take(http, copy, "*/*")
                    assert found.content == b'{"a": 1}'
                    assert found.headers["content-type"] == (content_type or "application/octet-stream")
                    assert (found.headers["x-oms-h-messagekey"], found.headers["x-oms-h-traceid*"]) == (
                        "",
                        "UTF-8''a%0Ab",
                    )


def delivered(http: httpx.Client, calling: Bridge, endpoint: Endpoint, source: str) -> Iterator[sdk.HTTPMessage]:
    """Yield the only message of a destination as it is delivered in each mode, and as a batch."""
    for form, accept in {"binary": BINARY, "structured": STRUCTURED}.items():
        pulled = take(http, source, accept, group=f"pull-{form}")
        path = f"/{source}/{form}"
        register(calling, source, endpoint.url(path), f"callback-{form}", accept=accept)
        [posted] = endpoint.wait_for(path, 1)
        for headers, body in ((pulled.headers, pulled.content), (posted.headers, posted.body)):
            names = {name.lower(): value for name, value in headers.items()}
            event = {name: value for name, value in names.items() if name.startswith("ce-") or name == "content-type"}
            yield sdk.HTTPMessage(event, body)
    path = f"/{source}/batch"
    register(calling, source, endpoint.url(path), "callback-batch", accept=BATCHED, maxmessages=1)
    [batch] = endpoint.wait_for(path, 1)
    [event] = json.loads(batch.body)
    yield sdk.HTTPMessage({"content-type": STRUCTURED}, json.dumps(event).encode())
    assert post(http, f"{source}-batch", sdk.HTTPMessage({"content-type": BATCHED}, batch.body)).status_code == 200


@MOSTLY_HYPERCORN
def test_the_time_of_an_event_counts_for_its_url(http: httpx.Client, name: str) -> None:
    """`expire` is counted from the time of the event, which structured mode has in the body."""
    born = time.time_ns() // 10**9 * 1000
    for write in (sdk.to_binary_event, sdk.to_structured_event):
        attributes = {"id": write.__name__, "source": "/s", "type": "t"}
        message = write(CloudEvent(attributes | {"time": datetime.fromtimestamp(born / 1000, UTC)}))
        assert post(http, name, message, "?expire=1h&key=k").status_code == 200
        attributes = event_of(take(http, name, STRUCTURED)).get_attributes()
        assert int(attributes["omsexpiretime"]) - born == 3_600_000
        assert attributes["partitionkey"] == "k"


@MOSTLY_HYPERCORN
def test_what_is_no_event_stores_nothing(http: httpx.Client, name: str, subtests: pytest.Subtests) -> None:
    event = CloudEvent({"id": "1", "source": "/s", "type": "t", "partitionkey": "k"})
    structured, binary = sdk.to_structured_event(event), sdk.to_binary_event(event)
    packed = sdk.HTTPMessage(structured.headers, gzip.compress(structured.body))
    cases: dict[str, tuple[httpx.Response, int, str]] = {
        "gzip": (post(http, name, packed, **{"content-encoding": "gzip"}), 415, "content-type-unsupported"),
        "avro": (post(http, name, structured, **{"content-type": f"{BINARY}+avro"}), 415, "content-type-unsupported"),
        "JSON": (post(http, name, sdk.HTTPMessage(structured.headers, b"{")), 400, "body-invalid"),
        "version": (post(http, name, binary, **{"ce-specversion": "0.3"}), 400, "header-invalid"),
        "type": (post(http, name, sdk.HTTPMessage({"ce-id": "1"}, b"")), 400, "header-missing"),
        "key": (post(http, name, binary, "?key=other"), 400, "header-repeated"),
        "key in the body": (post(http, name, structured, "?key=other"), 400, "header-repeated"),
        "large": (post(http, name, binary, **{"ce-large": "%20" * 10_900}), 431, "headers-too-large"),
    }
    for case, (answer, status, code) in cases.items():
        with subtests.test(case):
            assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    pull = {"version": "1.0.0", "source": name, "consumerid": "app"}
    assert http.get("/v1/messages", params=pull).status_code == 204


def parts_of(body: bytes, content_type: str) -> list[Event]:
    document = BytesParser().parsebytes(f"content-type: {content_type}\r\n\r\n".encode() + body)
    parts: list[EmailMessage] = document.get_payload()  # type: ignore[assignment] # of multipart
    assert not document.defects
    found = []
    for part in parts:
        data = part.get_payload(decode=True)
        assert isinstance(data, bytes)
        found.append(sdk.from_binary_event(sdk.HTTPMessage({n.lower(): str(v) for n, v in part.items()}, data)))
    return found


def lines_of(body: bytes, _: str) -> list[Event]:
    read = JSONFormat().read
    return [read(None, line) for line in body.splitlines() if not line.startswith(b'{"end"')]


def data_of(body: bytes, _: str) -> list[Event]:
    read = JSONFormat().read
    lines = [line.removeprefix(b"data: ") for line in body.splitlines() if line.startswith(b"data: ")]
    return [read(None, line) for line in lines if not line.startswith(b'{"end"')]


def elements_of(body: bytes, _: str) -> list[Event]:
    return [JSONFormat().read(None, json.dumps(event)) for event in json.loads(body)]


Reader = Callable[[bytes, str], list[Event]]
FRAMINGS: Final[dict[str, Reader]] = {
    "multipart/mixed": parts_of,
    "application/x-ndjson": lines_of,
    "text/event-stream": data_of,
}


@MOSTLY_HYPERCORN
def test_each_framing_of_a_push_stream_carries_events(http: httpx.Client, name: str) -> None:
    sent = events("abc")[:2]  # the mail parser of the test changes bytes that are no text
    for event in sent:
        assert post(http, name, sdk.to_binary_event(event)).status_code == 200
    for framing, read in FRAMINGS.items():
        params = {"version": "1.0.0", "source": name, "consumerid": framing.replace("/", "-"), "ack": "true"}
        accept = {"accept": f"{framing};q=0.5, {framing}; format=cloudevents"}
        bounds = {"maxmessages": "2", "leasemills": "300"}
        answer = http.get("/v1/push", params=params | bounds, headers=accept)
        assert answer.status_code == 200, answer.text
        content_type = answer.headers["content-type"]
        assert (content_type.split(";")[0], content_type.split("; ")[-1]) == (framing, "format=cloudevents")
        found = sorted(read(answer.content, content_type), key=CloudEvent.get_id)
        assert len(found) == 2
        assert all(map(same, found, sent))
        if framing != "multipart/mixed":
            assert all(event.get_attributes()["omsreceipt"] for event in found)
            assert all(int(event.get_attributes()["omsleaseuntil"]) for event in found)


@MOSTLY_HYPERCORN
def test_callbacks_are_events_one_by_one_and_in_batches(
    start: Start, endpoint: Endpoint, name: str, subtests: pytest.Subtests
) -> None:
    calling = start(**endpoint.settings())
    sent = events()[:2]
    with httpx.Client(base_url=calling.url, trust_env=False, timeout=60) as http:
        for event in sent:
            assert post(http, name, sdk.to_structured_event(event)).status_code == 200
    forms: dict[str, Reader | None] = {
        BINARY: None,
        STRUCTURED: None,
        BATCHED: elements_of,
        "multipart/mixed; format=cloudevents": parts_of,
        "application/x-ndjson; format=cloudevents": lines_of,
    }
    for number, (form, read) in enumerate(forms.items()):
        with subtests.test(form):
            path = f"/{name}/{number}"
            more = {} if read is None else {"maxmessages": 1}
            answer = register(calling, name, endpoint.url(path), f"g{number}", accept=form, **more)
            assert (answer.status_code, answer.json()["form"]) == (201, form)
            posts = endpoint.wait_for(path, 2)
            found = [
                event
                for posted in posts
                for headers in [{n.lower(): v for n, v in posted.headers.items()}]
                for event in (
                    [sdk.from_http_event(sdk.HTTPMessage(headers, posted.body))]
                    if read is None
                    else read(posted.body, headers["content-type"])
                )
            ]
            assert all(map(same, found, sent))
            assert all("webhook-signature" in posted.headers for posted in posts)
    wait_until(lambda: (listed(calling, name) or {})["delivered"] == 2)
