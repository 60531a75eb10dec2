"""CloudEvents: the cases of the specification, and the official SDK on the other side."""

import json
import re
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import pytest
from cloudevents.core.bindings import http as sdk
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from bridge.cloudevents import DEFAULT_TYPE, format_time, parse_time, to_attributes
from bridge.errors import (
    BodyInvalid,
    BodyTooLarge,
    BridgeError,
    ContentTypeUnsupported,
    HeaderInvalid,
    HeaderMissing,
    HeaderRepeated,
    HeadersTooLarge,
)
from bridge.long_work import run_at_once
from bridge.message import FIELDS, Message
from bridge.wire import cloudevents
from bridge.wire.cloudevents import Mode
from bridge.wire.headers import Headers, parse
from tests.unit.strategies import broker_messages, messages

PARENT: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
MINIMAL: Final = {
    "specversion": "1.0",
    "id": "minimal",
    "type": "io.cloudevents.test",
    "source": "https://cloudevents.io",
}


def headers(*pairs: tuple[str, str]) -> Headers:
    return parse([(b"x-oms-h-destination", b"orders"), *((n.lower().encode(), v.encode()) for n, v in pairs)])


def unchanged(headers: Headers) -> Headers:
    return headers


def read(event: object) -> Message:
    """Read one event in structured mode."""
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    return run_at_once(cloudevents.read_structured(headers(("content-type", Mode.STRUCTURED.value)), body, unchanged))


def binary(*pairs: tuple[str, str], body: bytes = b"") -> Message:
    """Read one event in binary mode."""
    found = headers(*pairs)
    assert cloudevents.mode_of(found.plain) is Mode.BINARY
    return cloudevents.read_binary(found).message(body)


def written(message: Message) -> Any:  # noqa: ANN401 - JSON
    return json.loads(cloudevents.encode_json(message))


def by_sdk(message: Message, mode: Mode) -> Any:  # noqa: ANN401 - the SDK's event
    pairs, body = cloudevents.encode(message, mode)
    return sdk.from_http_event(sdk.HTTPMessage({n.decode(): v.decode("ascii") for n, v in pairs}, body))


def test_every_field_is_an_attribute_and_comes_back() -> None:
    event = {
        **MINIMAL,
        **{f"oms{f.name.lower()}": "7" if f.maximum is None or f.maximum > 2 else 1 for f in FIELDS},
        "time": "2018-04-05T17:31:00.250+01:00",
        "partitionkey": "k",
        "subject": "s",
        "dataschema": "urn:d",
        "traceparent": PARENT,
        "tracestate": "a=b",
        "datacontenttype": "text/plain",
        "data": "é\n",
    }
    for name in ("omsmessageid", "omsborntimestamp", "omsmessagekey"):
        del event[name]
    message = read(event)
    assert (message.message_id, message.born_timestamp, message.message_key) == ("minimal", 1522945860250, "k")
    assert message.properties == {name: event[name] for name in ("source", "type", "subject", "dataschema")}
    assert (message.destination, message.partition, message.delivery_count) == ("orders", None, None), "of the delivery"
    assert (message.priority, message.expire_time, message.correlation_id, message.qos) == (7, 7, "7", 1)
    assert (message.content_type, message.body) == ("text/plain", "é\n".encode())
    for mode in (Mode.BINARY, Mode.STRUCTURED):
        pairs, body = cloudevents.encode(message, mode)
        found = headers(*((n.decode(), v.decode()) for n, v in pairs))
        again = (
            cloudevents.read_binary(found).message(body)
            if mode is Mode.BINARY
            else run_at_once(cloudevents.read_structured(found, body, unchanged))
        )
        assert again == message


def test_what_no_attribute_can_hold_comes_back_too() -> None:
    properties = {"OrderId": "7", "order-id": "8", "time": "now", "tab": "\t", "subject": "", "plain": "ä", "empty": ""}
    message = Message("orders", b"x", properties, message_id="1", expire_time=2**62, born_timestamp=2**62)
    event = written(message)
    assert json.loads(event["omsproperties"]) == {n: t for n, t in properties.items() if n not in ("plain", "empty")}
    assert (event["plain"], event["empty"], event["omsexpiretime"]) == ("ä", "", str(2**62))
    assert "time" not in event, "RFC 3339 ends with the year 9999"
    assert (event["source"], event["type"]) == ("urn:openmessaging-bridge:destination:orders", DEFAULT_TYPE)
    assert event["omsdestination"] == "orders"
    again = read(event)
    assert again.properties == {**properties, "source": event["source"], "type": event["type"]}


VALID: Final[dict[str, dict[str, Any]]] = {
    "minimal": {},
    "null for optional": dict.fromkeys(("datacontenttype", "dataschema", "subject", "time", "extension")),
    "all core attributes": {"datacontenttype": "text/plain", "dataschema": "urn:d", "subject": "tests"},
    "nanoseconds": {"time": "2018-04-05T17:31:00.000000000Z"},
    "positive offset": {"time": "2018-04-05T18:31:00+01:00"},
    "negative offset": {"time": "2018-04-05t16:31:00-01:00"},
    "relative source": {"source": "#fragment"},
    "text": {"datacontenttype": "text/plain", "data": "Simple text"},
    "extensions": {"extinteger": 10, "extboolean": True, "extnegative": -(2**31), "extbinary": "TWE="},
}
"""The valid events of github.com/cloudevents/conformance, format/json."""


def test_a_valid_event_of_the_conformance_files_comes_back(subtests: pytest.Subtests) -> None:
    for name, members in VALID.items():
        event = {**MINIMAL, **members}
        expected = {n: str(v).lower() if isinstance(v, int) else v for n, v in event.items() if v is not None}
        expected["omsdestination"] = "orders"
        if "time" in expected:
            expected["time"] = "2018-04-05T17:31:00Z"
        with subtests.test(name):
            assert written(read(event)) == expected


INVALID: Final[dict[str, dict[str, Any]]] = {
    **{f"no {name}": {name: None} for name in MINIMAL},
    **{f"empty {name}": {name: ""} for name in (*MINIMAL, "datacontenttype", "dataschema", "subject", "partitionkey")},
    **{
        f"time {time}": {"time": time}
        for time in (
            *("lunchtime", "2018-04-05T18:31Z", "2018-04-05T18:31:00X", "2018-04-05T18:31:00+25:00"),
            *("2018-04-05T18:31:00+xx:00", "2018-04-05T18:31:00+05", "2018-02-30T18:31:00Z", "1969-12-31T23:59:59Z"),
            *("2018-04-05T18:31:60Z", "2016-12-31T23:59:60+01:00", "2016-12-31T23:59:61Z", "2016-12-31T23:60:00Z"),
        )
    },
    "another version": {"specversion": "0.9"},
    "no media type": {"datacontenttype": "xyz"},
    "number as id": {"id": {"xyz": "abc"}},
    "upper case": {"MyExtension": "bad"},
    "punctuation": {"my.extension": "bad"},
    "fraction": {"extension": 1.5},
    "more than 32 bits": {"extension": 2**31},
    "control character": {"extension": "a\nb"},
    "array": {"extension": [1]},
    "data twice": {"data": "text", "data_base64": "eyAieHl6IjogMTIzIH0="},
    "no base64": {"data_base64": "?"},
    "data that is no text": {"datacontenttype": "text/plain", "data": {}},
    "another charset": {"datacontenttype": "text/plain; charset=utf-16", "data": "x"},
    "a field out of range": {"omsqos": 3},
    "a field that is no number": {"omspriority": "high"},
    "properties that are no object": {"omsproperties": "[]"},
    "fields that are no object": {"omsfields": "{"},
    "a field that is set on delivery": {"omsfields": '{"storeHost": "x"}'},
    "a field that is no text": {"omsfields": '{"messageKey": 1}'},
    "half a surrogate pair": {"omsproperties": '{"a": "\\ud800"}'},
}
"""The invalid events of the same files, and what no message can hold."""


def test_an_invalid_event_is_refused(subtests: pytest.Subtests) -> None:
    for name, members in INVALID.items():
        with subtests.test(name), pytest.raises((BodyInvalid, HeaderInvalid, HeaderMissing)) as refused:
            read({**MINIMAL, **members})
        detail = refused.value.detail
        assert detail.endswith(".")
        assert detail.isascii()
        assert min(members) in detail or "data" in detail or name == "upper case"


def test_a_body_that_is_no_event_is_refused(subtests: pytest.Subtests) -> None:
    minimal = json.dumps(MINIMAL).encode()
    bodies: dict[bytes, type[BridgeError]] = {
        **dict.fromkeys((b"", b"[]", b"1", b"{", b"\xff", b"[" * 9999, minimal + b"]", b'{"a":"\xff"}'), BodyInvalid),
        minimal + b"," + minimal: BodyInvalid,
        minimal[:-1] + b',"id":"again"}': HeaderRepeated,
        b"{%b}" % b",".join(b'"a%d":1' % n for n in range(5000)): HeadersTooLarge,
        b"{}": HeaderMissing,
        json.dumps({**MINIMAL, "omsproperties": " " * 70_000}).encode(): HeadersTooLarge,
    }
    for body, expected in bodies.items():
        with subtests.test(str(body[:20])), pytest.raises(expected):
            read(body)


def test_data_is_stored_as_it_was_sent() -> None:
    def body(members: str) -> tuple[bytes, str | None]:
        message = read(json.dumps(MINIMAL)[:-1].encode() + f", {members}}}".encode())
        return message.body, message.content_type

    assert body('"data": {"n": 1.10,\n "e": 1e400}') == (b'{"n": 1.10,\n "e": 1e400}', "application/json")
    assert body('"data": "text"') == (b'"text"', "application/json"), "no type means JSON"
    assert body('"data": null, "datacontenttype": "a/b+json; charset=UTF-8"') == (b"null", "a/b+json; charset=UTF-8")
    assert body('"data": "<a/>\\u00e9", "datacontenttype": "application/xml"') == ("<a/>é".encode(), "application/xml")
    assert body('"data_base64": "AP8="') == (b"\0\xff", None)
    assert body('"data_base64": null') == (b"", None)
    assert body('"data_base64": null, "data": {"n": 1}') == (b'{"n": 1}', "application/json")
    assert body('"data": "x", "data_base64":null, "datacontenttype": "text/plain"') == (b"x", "text/plain")
    assert body('"data": null, "data_base64": "AP8="') == (b"\0\xff", None)
    assert body('"data": null, "data_base64": null') == (b"", None)
    assert body('"data": null, "data_base64": null, "datacontenttype": "text/plain"') == (b"", "text/plain")
    assert body('"data": null, "datacontenttype": "text/plain"') == (b"", "text/plain")
    assert body('"data": null') == (b"null", "application/json"), "a document of JSON"


def test_the_member_of_the_data_depends_on_its_type() -> None:
    def data(body: bytes, content_type: str | None) -> tuple[str | None, object]:
        event = written(Message("o", body, message_id="1", content_type=content_type))
        members = [name for name in ("data", "data_base64") if name in event]
        return (members[0], event[members[0]]) if members else (None, event.get("datacontenttype"))

    assert data(b'{"a":\r\n 1}', "application/json") == ("data", {"a": 1})
    assert data(b'{"a":', "application/json")[0] == "data_base64"
    assert data(b'"\xff"', "application/json")[0] == "data_base64"
    assert data("é".encode(), "text/plain; charset=utf-8") == ("data", "é")
    assert data("é".encode("latin-1"), "text/plain") == ("data_base64", "6Q==")
    assert data("é".encode(), "text/plain; charset=latin-1")[0] == "data_base64"
    assert data(b"\0", None)[0] == "data_base64"
    assert data(b"", "text/plain") == (None, "text/plain")
    event = cloudevents.encode_json(Message("o", b"[1,\n\r\n2]", message_id="1", content_type="application/json"))
    assert b"\n" not in event
    assert b"\r" not in event


def test_header_values_are_percent_encoded() -> None:
    """The examples of "HTTP Header Values", and values that older producers quote."""
    required = [(f"ce-{name}", value) for name, value in MINIMAL.items()]
    cases = {
        "Euro%20%E2%82%AC%20%F0%9F%98%80": "Euro € 😀",
        "%e2%82%ac%41": "€A",
        '"two words \\"quoted\\" \\\\"': 'two words "quoted" \\',
        "raw spaces": "raw spaces",
        "": "",
        "100%": "100%",
        "100%, %zz and %4": "100%, %zz and %4",
        "%%41%25": "%A%",
        '"5%"': "5%",
    }
    for raw, text in cases.items():
        assert binary(*required, ("CE-Extension", raw)).properties["extension"] == text
    for raw in ("%C0%A0", "%ff", "100%ff", "a%0ab", "€"):
        with pytest.raises(HeaderInvalid, match=r"^ce-extension"):
            binary(*required, ("ce-extension", raw))
    pairs, _ = cloudevents.encode(Message("o", properties={"e": 'Euro €"%~!'}, message_id="1"), Mode.BINARY)
    assert dict(pairs)[b"ce-e"] == b"Euro%20%E2%82%AC%22%25~!"


def test_a_binary_event_needs_its_attributes() -> None:
    required = {f"ce-{name}": value for name, value in MINIMAL.items()}
    for name in required:
        with pytest.raises(HeaderMissing, match=f"^{name} is required"):
            binary(*((other, value) for other, value in required.items() if other != name))
    for name in ("ce-datacontenttype", "ce-data", "ce-my-extension", "ce-"):
        with pytest.raises(HeaderInvalid, match=f"^{name}:"):
            binary(*required.items(), (name, "text/plain"))
    message = binary(*required.items(), ("content-type", "text/plain"), ("traceparent", PARENT), body=b"x")
    assert (message.content_type, message.traceparent, message.body) == ("text/plain", PARENT, b"x")
    with pytest.raises(HeaderRepeated, match="messageId"):
        binary(*required.items(), ("x-oms-h-messageid", "another"))
    with pytest.raises(HeaderRepeated, match="source"):
        binary(*required.items(), ("x-oms-p-source", "another"))


def test_the_content_type_names_the_mode() -> None:
    for content_type, mode in {
        "application/cloudevents+json; charset=utf-8": Mode.STRUCTURED,
        "Application/CloudEvents-Batch+JSON": Mode.BATCHED,
        "application/json": None,
    }.items():
        assert cloudevents.mode_of({b"content-type": content_type.encode(), b"ce-extension": b"1"}) is mode
    for content_type in ("application/cloudevents+avro", "application/cloudevents"):
        with pytest.raises(ContentTypeUnsupported):
            cloudevents.mode_of({b"content-type": content_type.encode(), b"ce-id": b"1"})


def test_accept_names_the_mode() -> None:
    binary, structured = Mode.BINARY, Mode.STRUCTURED
    for accept, mode in {
        None: None,
        b"*/*": None,
        b"application/json, application/*": None,
        b"application/cloudevents+json;q=0": None,
        b"application/cloudevents-batch+json": None,
        b"Application/CloudEvents": binary,
        b"application/cloudevents+json; charset=utf-8, */*;q=0.1": structured,
        b"application/cloudevents;q=0.5, application/cloudevents+json": structured,
        b"application/cloudevents, application/cloudevents+json": binary,
    }.items():
        assert cloudevents.accepted_mode(accept) is mode


def test_events_of_a_batch_are_judged_one_by_one() -> None:
    def batch(body: bytes, limit: int = 4) -> list[Message | BridgeError]:
        return run_at_once(cloudevents.read_batch(headers(("x-oms-h-priority", "9")), body, limit, unchanged))

    events = [MINIMAL, {**MINIMAL, "specversion": "0.9"}, "no object", {**MINIMAL, "id": "2", "omspriority": 3}]
    first, version, no_object, priority = batch(json.dumps(events).encode())
    assert isinstance(first, Message)
    assert first.priority == 9
    assert [type(error) for error in (version, no_object, priority)] == [HeaderInvalid, BodyInvalid, HeaderRepeated]
    assert batch(b" [] ") == []
    with pytest.raises(BodyTooLarge):
        batch(json.dumps([MINIMAL] * 5).encode())
    for body in (b"", b"{}", b"[", b"[1,]", b"[{},{}", b"\xff"):
        with pytest.raises(BodyInvalid):
            batch(body)


def test_large_bodies_are_read_in_steps() -> None:
    """No other request is answered during a step."""
    steps = cloudevents.read_batch(headers(), b"[%b1]" % (b"[1,2]," * 100_000), 10**6, unchanged)
    assert sum(1 for _ in steps) > 100
    steps = cloudevents.read_batch(headers(), b"[%b1]" % (b"1," * 100_000), 1000, unchanged)
    with pytest.raises(BodyTooLarge):
        run_at_once(steps)


def test_a_text_that_does_not_end_is_read_once() -> None:
    """If each of its quotes were tried up to its end, a body of 4 MiB would take hours."""
    endless = b'"' + b'\\"' * 500_000
    for body in (endless, endless + b"\\"):
        with pytest.raises(BodyInvalid):
            read(body)
    required = [(f"ce-{name}", value) for name, value in MINIMAL.items()]
    assert len(binary(*required, ("ce-long", endless.decode())).properties["long"]) == 500_000


def test_an_event_whose_headers_are_too_large_is_sent_in_structured_mode() -> None:
    message = Message("o", b"x", {"spaces": "   " * 7_000}, message_id="1")
    pairs, body = cloudevents.encode(message, Mode.BINARY)
    assert pairs == [(b"content-type", b"application/cloudevents+json")]
    assert read(body).properties["spaces"] == message.properties["spaces"]


def sdk_events() -> Iterator[CloudEvent]:
    attributes = {"id": "order 7%", "source": "/shop", "type": "order.created", "subject": 'ä "quoted"', "flag": True}
    contents: dict[str, Any] = {
        "application/json": {"n": 1.5, "text": "ü"},
        "text/plain": "Grüße\n",
        "application/octet-stream": b"\0\xff",
    }
    for content_type, data in contents.items():
        yield CloudEvent({**attributes, "datacontenttype": content_type}, data)
    yield CloudEvent({**attributes, "partitionkey": "k", "traceparent": PARENT})


def test_the_official_sdk_and_the_codec_read_each_other(subtests: pytest.Subtests) -> None:
    for event in sdk_events():
        structured, in_binary = sdk.to_structured_event(event), sdk.to_binary_event(event)
        messages = [
            binary(*in_binary.headers.items(), body=in_binary.body),
            run_at_once(cloudevents.read_structured(headers(*structured.headers.items()), structured.body, unchanged)),
        ]
        expected = {name: value for name, value in event.get_attributes().items() if name not in ("time", "flag")}
        for message, mode in product(messages, (Mode.BINARY, Mode.STRUCTURED)):
            with subtests.test(content_type=message.content_type, mode=mode):
                found = by_sdk(message, mode)
                attributes = found.get_attributes()
                assert {name: attributes[name] for name in expected} == expected
                assert attributes["flag"].lower() == "true", "the SDK writes True into a header"
                assert abs((attributes["time"] - event.get_time()).total_seconds()) < 0.001
                assert found.get_data() == event.get_data()


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("aZ.-é", max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from([*MINIMAL, "time", "data", "data_base64", "datacontenttype", "omsqos"]), documents),
    st.dictionaries(st.text(max_size=5), documents, max_size=2),
    st.binary(max_size=2),
)
def test_whatever_comes_is_an_event_or_refused(core: dict[str, Any], more: dict[str, Any], tail: bytes) -> None:
    for body in (json.dumps({**MINIMAL, **more, **core}).encode() + tail, tail):
        try:
            message = read(body)
        except BridgeError as error:
            assert error.detail.isascii()  # noqa: PT017 - either is allowed
        else:
            assert read(cloudevents.encode_json(message)).message_id == message.message_id


def again_in_each_mode(message: Message) -> Iterator[Message]:
    """Produce what is delivered: one by one in each mode, and as a batch."""
    for mode in (Mode.BINARY, Mode.STRUCTURED):
        pairs, body = cloudevents.encode(message, mode)
        found = parse([(b"x-oms-h-destination", b"orders"), *pairs])
        if cloudevents.mode_of(found.plain) is Mode.BINARY:
            yield cloudevents.read_binary(found).message(body)
        else:
            yield run_at_once(cloudevents.read_structured(found, body, unchanged))
    [of_batch] = run_at_once(
        cloudevents.read_batch(headers(), b"[%b]" % cloudevents.encode_json(message), 1, unchanged)
    )
    assert isinstance(of_batch, Message), of_batch
    yield of_batch


CONTENT_TYPES: Final = (
    *("json", "", "*/*", "text / plain", "text/plain, application/json", "application/json, text/plain", "a/b/c", "/"),
    *("text/", ";", "text/plain\t;x", "text/\u00e9", "text/plain; charset=\u00e9", "a\nb", "application/cloudevents"),
    *("application/cloudevents+json", "Application/CloudEvents+avro", "text/plain; charset=utf-16", "text/plain;"),
    *("application/octet-stream", " text/plain ", "\ud800"),
)


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"text", b"\0\xff"])
def test_a_delivered_event_can_be_produced_again_whatever_its_type_is(subtests: pytest.Subtests, body: bytes) -> None:
    for content_type in CONTENT_TYPES:
        with subtests.test(content_type=content_type):
            message = Message("orders", body, message_id="1", content_type=content_type)
            attributes = to_attributes(message)
            if "datacontenttype" in attributes:
                media_type = str(attributes["datacontenttype"])
                assert re.fullmatch(r"[!-.0-:<-~]+/[!-.0-:<-~]+ *(;[ -~]*)?", media_type), "as RFC 2046 has it"
            expected = None if content_type == "application/octet-stream" else content_type.replace("\ud800", "?")
            for again in again_in_each_mode(message):
                assert (again.body, again.content_type) == (body, expected)


def test_a_delivered_event_can_be_produced_again_whatever_its_fields_are(subtests: pytest.Subtests) -> None:
    texts = ("", " ", "a\nb", "\0", "\x85", "\uffff", "\ufdd0", "%", "%41", '"', "\u00fc", "\U0001f600")
    for text in texts:
        with subtests.test(text=text):
            message = Message(
                *("orders", b"x", {"source": "/s", "type": "t", "p": text, "P": text}),
                message_id="1",
                message_key=text,
                correlation_id=text,
                trace_id=text,
                transaction_id=text,
                born_host=text,
            )
            for again in again_in_each_mode(message):
                assert again == message
            [event] = {json.dumps(written(message)["id"])}
            assert event == '"1"'


def test_an_id_that_no_event_can_have_is_escaped() -> None:
    message = Message("orders", b"x", message_id="a\n\u00fc\uffff")
    assert [again.message_id for again in again_in_each_mode(message)] == ["a%0A\u00fc%EF%BF%BF"] * 3


def test_half_a_surrogate_pair_of_a_broker_becomes_a_question_mark() -> None:
    message = Message("orders", b"", {"P\ud800": "\udfff"}, message_id="1", message_key="\ud800")
    for again in again_in_each_mode(message):
        assert (again.properties["P?"], again.message_key) == ("?", "?")


@given(messages())
def test_any_delivered_event_can_be_produced_again(message: Message) -> None:
    message = message._replace(message_id="1", compression=None, delivery_count=None, destination="orders")
    defaults = {"source": "urn:openmessaging-bridge:destination:orders", "type": DEFAULT_TYPE}
    for again in again_in_each_mode(message):
        assert again.body == message.body
        assert again.properties == {**defaults, **message.properties}
        for field in ("message_key", "correlation_id", "trace_id", "transaction_id", "born_host", "content_type"):
            assert getattr(again, field) == getattr(message, field)


@given(broker_messages())
def test_so_can_what_only_a_broker_holds(message: Message) -> None:
    properties = {
        name: text for name, text in message.properties.items() if 0 < len(name.encode("utf-8", "replace")) < 250
    }
    message = message._replace(message_id=message.message_id or "1", destination="orders", properties=properties)
    for again in again_in_each_mode(message):
        assert again.body == message.body


def test_a_leap_second_is_the_second_after_it() -> None:
    for text, after in {
        "2016-12-31T23:59:60Z": "2017-01-01T00:00:00Z",
        "2016-12-31T23:59:60.999999Z": "2017-01-01T00:00:00.999Z",
        "1990-12-31T15:59:60-08:00": "1991-01-01T00:00:00Z",
        "2015-07-01t05:29:60+05:30": "2015-07-01T00:00:00Z",
        "9999-12-31T23:59:60Z": None,
    }.items():
        assert written(read({**MINIMAL, "time": text})).get("time") == after


@given(st.integers(0, 253_402_300_799_999))
def test_times_come_back(milliseconds: int) -> None:
    assert parse_time(format_time(milliseconds)) == milliseconds
