from collections.abc import Mapping
from functools import partial
from typing import cast
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.engine.pull_and_prefetch import CancelOnDisconnect
from bridge.errors import HeaderInvalid, HeaderMissing, HeaderRepeated, VersionUnsupported
from bridge.http import params
from bridge.http.params import (
    DESTINATION_MESSAGES,
    Requirements,
    flag,
    header_names,
    merge,
    number,
    parse_optional_subscription,
    parse_receipts,
    parse_require,
    parse_subscription,
    positive,
    required,
    url_headers,
)
from bridge.http.request_and_reply import RECEIPTS_MAX, BodyStream, Request
from bridge.message import FIELDS, LONG_MAX
from bridge.wire.headers import PARAMETERS, Headers, parse
from tests.unit.api_document import OPERATIONS
from tests.unit.strategies import NO_NUMBERS, refusal


@given(st.dictionaries(st.sampled_from(sorted(PARAMETERS)), st.text(max_size=10)))
def test_a_query_says_what_headers_would_say(parameters: dict[str, str]) -> None:
    assert merge({}, urlencode(parameters).encode()) == parameters
    assert merge(parameters, urlencode(parameters).encode()) == parameters


def test_a_query_is_decoded_whatever_in_it_needs_it(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes, dict[str, str]]] = [
        (b"", {}),
        (b"source=a%20b", {"source": "a b"}),
        (b"source=a+b", {"source": "a b"}),
        (b"source=a%20b+c", {"source": "a b c"}),
        (b"source=", {"source": ""}),
        (b"source", {"source": ""}),
        (b"source=a=b", {"source": "a=b"}),
        (b"SOURCE=a&Ack=TRUE", {"source": "a", "ack": "TRUE"}),
        (b"source=%C3%BC", {"source": "ü"}),
    ]
    for query, found in cases:
        with subtests.test(query=query):
            assert merge({}, query) == found


def test_a_query_has_at_most_64_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"p{number}" for number in range(65)]
    monkeypatch.setattr(params, "PARAMETERS", frozenset(names))
    for value in ("a", "a%20b"):
        assert len(merge({}, "&".join(f"{name}={value}" for name in names[:64]).encode())) == 64
        with pytest.raises(HeaderInvalid, match="not a list of name=value"):
            merge({}, "&".join(f"{name}={value}" for name in names).encode())


def test_a_header_and_a_parameter_that_agree_are_no_repetition() -> None:
    assert merge({"source": "a", "ack": "true"}, b"source=a&waitmills=5") == {
        "source": "a",
        "ack": "true",
        "waitmills": "5",
    }


def test_different_values_and_repeated_parameters_are_refused(subtests: pytest.Subtests) -> None:
    for query in (b"source=b", b"source=a&source=a", b"SOURCE=b", b"source=", b"source=a&SOURCE=a"):
        with subtests.test(query=query), pytest.raises(HeaderRepeated):
            merge({"source": "a"}, query)


def test_a_mistyped_parameter_names_the_nearest_one(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes, str]] = [
        (b"waitmils=5", "unknown query parameter `waitmils`; did you mean `waitmills`?"),
        (b"Consumer-ID=a", "unknown query parameter `Consumer-ID`; did you mean `consumerid`?"),
        (b"x-oms-source=a", "unknown query parameter `x-oms-source`; did you mean `source`?"),
        (b"colour=red", "unknown query parameter `colour`; GET /docs lists all of them."),
    ]
    for query, sentence in cases:
        with subtests.test(query=query), pytest.raises(HeaderInvalid) as refused:
            merge({}, query)
        assert refused.value.detail == sentence


def test_suggestions_are_what_the_request_takes_spelled_for_its_place(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str, str, str]] = [
        ("POST /v1/nack", "delay", "x-oms-delaymills", "delaymills"),
        ("POST /v1/nack", "delaytime", "x-oms-delaymills", "delaymills"),
        ("POST /v1/nack", "h-delaytimes", "x-oms-delaymills", ""),
        ("POST /v1/extend", "lease", "x-oms-leasemills", "leasemills"),
        ("POST /v1/ack", "receipts", "x-oms-receipt", "receipt"),
        ("GET /v1/messages", "waitms", "x-oms-waitmills", "waitmills"),
        ("GET /v1/push", "maxmessage", "x-oms-maxmessages", "maxmessages"),
        ("POST /v1/push", "callback", "x-oms-callbackurl", "callbackurl"),
        ("POST /v1/messages", "delay", "x-oms-h-delaytime", ""),
        (f"POST {DESTINATION_MESSAGES}", "delaytimes", "x-oms-h-delaytime", ""),
        ("GET /v1/log", "offsets", "x-oms-offset", "offset"),
    ]
    for route, mistyped, header, parameter in cases:
        with subtests.test(f"{route} {mistyped}"):
            with pytest.raises(HeaderInvalid, match=f"did you mean `{header}`"):
                parse([(f"x-oms-{mistyped}".encode(), b"1")], partial(header_names, route))
            if parameter:
                for spelled in (mistyped, f"x-oms-{mistyped}"):
                    with pytest.raises(HeaderInvalid, match=f"did you mean `{parameter}`"):
                        merge({}, f"{spelled}=1".encode(), route)


def test_every_route_has_suggestions_and_none_that_it_does_not_take() -> None:
    for (path, method), operation in OPERATIONS.items():
        headers = {each["name"] for each in operation["parameters"] if each["in"] == "header"}
        taken = {name for name in headers if name.startswith("x-oms-")}
        assert set(header_names(f"{method.upper()} {path}").values()) == taken


def test_require_names_fields_that_ask_for_behaviour() -> None:
    assert [f.name for f in parse_require({"require": "delayTime, PRIORITY"}).fields] == ["delayTime", "priority"]
    assert parse_require({}) == parse_require({"require": ""}) == Requirements()
    assert parse_require({"require": "Headers"}) == Requirements([], headers=True)
    assert len(parse_require({"require": ",".join(f.name for f in FIELDS if f.is_feature)}).fields) == 11
    for wrong in ("speed", "delayTime,", ",", "destination", "ü"):
        with pytest.raises(HeaderInvalid):
            parse_require({"require": wrong})
    with pytest.raises(HeaderInvalid, match="unknown field `delaytme`; did you mean `delayTime`"):
        parse_require({"require": "delayTme"})


def test_a_query_that_names_no_parameter_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [
        *(b"sauce=a", b"colour=red", b"x-oms-source=a", b"h-destination=a", b"x-oms-source=a&consumerid=g"),
        *(b"\xff=1", b"source=%ff", b"=1", b"=", b"&".join([b"a=1"] * 65)),
    ]
    for query in cases:
        with subtests.test(query=query), pytest.raises(HeaderInvalid):
            merge({}, query)


@given(st.binary(max_size=60))
def test_no_query_raises_anything_but_the_error_tree(query: bytes) -> None:
    error = refusal(lambda: merge({"source": "a"}, query))
    assert error is None or error.detail.isascii()


def test_a_flag_is_true_or_false(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, bool]] = [("true", True), ("TRUE", True), ("false", False), ("False", False)]
    for given_text, expected in cases:
        with subtests.test(given_text=given_text, expected=expected):
            assert flag({"ack": given_text}, "ack") is expected
            assert flag({}, "ack") is False


def test_a_flag_that_is_neither_is_refused(subtests: pytest.Subtests) -> None:
    for given_text in ("", "1", "yes", "truth", "true,true", " true", "tru\u00e9"):
        with (
            subtests.test(given_text=given_text),
            pytest.raises(HeaderInvalid, match="x-oms-ack must be true or false"),
        ):
            flag({"ack": given_text}, "ack")


def test_a_number_has_a_default_and_a_range(subtests: pytest.Subtests) -> None:
    assert number({}, "waitmills", 7) == 7
    assert number({"waitmills": "0"}, "waitmills", 7) == 0
    assert number({"waitmills": str(LONG_MAX)}, "waitmills", 7) == LONG_MAX
    assert number({"credit": "5"}, "credit", 7, maximum=5) == 5
    for wrong in (*NO_NUMBERS, str(LONG_MAX + 1), "1" * 400):
        with subtests.test(wrong=wrong), pytest.raises(HeaderInvalid, match="x-oms-waitmills: "):
            number({"waitmills": wrong}, "waitmills", 7)
    with pytest.raises(HeaderInvalid, match="x-oms-credit: 6 is out of range; 0 to 5 is allowed"):
        number({"credit": "6"}, "credit", 7, maximum=5)


def test_a_positive_number_begins_at_one(subtests: pytest.Subtests) -> None:
    assert positive({}, "leasemills", 7) == 7
    assert positive({}, "leasemills", None) is None
    assert positive({"leasemills": "1"}, "leasemills", 7) == 1
    assert positive({"leasemills": str(LONG_MAX)}, "leasemills", 7) == LONG_MAX
    assert positive({"leasemills": "900000"}, "leasemills", 7, 900_000) == 900_000
    with pytest.raises(HeaderInvalid, match="x-oms-leasemills: 0 is out of range; 1 to 900000 is allowed"):
        positive({"leasemills": "0"}, "leasemills", 7, 900_000)
    with pytest.raises(HeaderInvalid, match="x-oms-leasemills: 900001 is out of range; 1 to 900000 is allowed"):
        positive({"leasemills": "900001"}, "leasemills", 7, 900_000)
    for wrong in (*NO_NUMBERS, "900001", str(LONG_MAX + 1), "1" * 400):
        with subtests.test(wrong=wrong), pytest.raises(HeaderInvalid, match="x-oms-leasemills: "):
            positive({"leasemills": wrong}, "leasemills", 7, 900_000)


def test_a_required_parameter_is_missed() -> None:
    assert required({"source": ""}, "source", "where from") == ""
    with pytest.raises(HeaderMissing, match="where from"):
        required({}, "source", "where from")


def test_half_a_name_of_a_group_is_refused() -> None:
    for named, says in (({}, "the queue or topic to consume from"), ({"source": "a"}, "the consumer group")):
        with pytest.raises(HeaderMissing, match=says):
            parse_subscription(named)
    assert parse_optional_subscription({}) is None
    for name, other in (("source", "consumerid"), ("consumerid", "source")):
        with pytest.raises(HeaderMissing, match=f"^x-oms-{other} .*it goes with x-oms-{name}"):
            parse_optional_subscription({name: "a"})


def test_receipts_come_one_or_several_separated_by_commas() -> None:
    assert parse_receipts({}) == []
    assert parse_receipts({"receipt": "a"}) == ["a"]
    assert parse_receipts({"receipt": "a, b ,c"}) == ["a", "b", "c"]
    assert len(parse_receipts({"receipt": ",".join(["a"] * RECEIPTS_MAX)})) == RECEIPTS_MAX
    for wrong in ("", ",", "a,", "a,,b", ",".join(["a"] * (RECEIPTS_MAX + 1))):
        with pytest.raises(HeaderInvalid):
            parse_receipts({"receipt": wrong})


def by_url(url: str, fields: Mapping[str, object] | None = None, parameters: dict[str, str] | None = None) -> Headers:
    """Return the headers of a produce to this URL, at 7 s after 1970."""
    path, _, query = url.partition("?")
    headers = Headers(dict(fields or {}), {"region": "eu"}, parameters or {}, {b"content-type": b"text/plain"})
    unused = cast("CancelOnDisconnect", None), cast("BodyStream", None)
    return url_headers(Request(headers, 0, query.encode(), path, b"", "", *unused), headers, 7000)


def test_a_url_sets_fields_and_parameters_of_a_message() -> None:
    headers = by_url(
        "/v1/destinations/orders/messages/order%207?key=c7&expire=5s", {"priority": 9}, {"require": "priority"}
    )
    assert headers.fields == {
        "destination": "orders",
        "message_id": "order 7",
        "message_key": "c7",
        "born_timestamp": 7000,
        "expire_time": 12000,
        "priority": 9,
    }
    assert headers.parameters == {"require": "priority"}
    assert (headers.properties, headers.plain) == ({"region": "eu"}, {b"content-type": b"text/plain"})


def test_times_of_a_url_count_from_the_message_s_own_time_if_it_has_one() -> None:
    fields = {"born_timestamp": 1000}
    assert by_url("/v1/destinations/orders/messages?expire=5s", fields).fields["expire_time"] == 6000


def test_what_a_url_and_its_headers_say_twice_is_the_same_or_refused() -> None:
    url = "/v1/destinations/orders/messages/7?key=c7&require=priority"
    same = {"destination": "orders", "message_id": "7", "message_key": "c7"}
    assert by_url(url, same, {"require": "priority"}).fields == same
    for name in same:
        with pytest.raises(HeaderRepeated):
            by_url(url, same | {name: "other"})
    with pytest.raises(HeaderRepeated):
        by_url(url, same, {"require": "delayTime"})


def test_a_produce_by_url_needs_no_version_but_not_a_wrong_one() -> None:
    assert by_url("/v1/destinations/orders/messages", parameters={"version": "1.0.0"}).parameters == {
        "version": "1.0.0"
    }
    with pytest.raises(VersionUnsupported):
        by_url("/v1/destinations/orders/messages", parameters={"version": "2.0.0"})
