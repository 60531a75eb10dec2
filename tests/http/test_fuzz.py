"""Thousands of generated requests: never a 500, never another request lost, never a growing process."""

import json
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.errors import BridgeError
from bridge.wire.headers import PARAMETERS
from bridge.wire.query_fields import QUERY_NAMES
from tests.conformance.frames import Answer, Frames
from tests.http.asking import VERSION, Pair, fresh, problem, store, stored
from tests.http.conftest import MOSTLY_HYPERCORN, Start
from tests.launch import Bridge
from tests.tiers import SOAK

GROWTH: Final = 48 << 20
"""Bytes by which a bridge may grow; one kept body of each fuzzed request would be more."""
EXAMPLES: Final = 5_000 if SOAK else 150
ROUNDS: Final = 400 if SOAK else 40

FIELDS: Final = (
    *("destination", "messageid", "borntimestamp", "bornhost", "qos", "compression", "partition", "storetimestamp"),
    *("storehost", "messagekey", "correlationid", "traceid", "transactionid", "delaytime", "expiretime", "priority"),
    *("durability", "deliverycount"),
)
PATHS: Final = [
    *("/v1/ack", "/v1/nack", "/v1/extend", "/v1/capabilities", "/x"),
    *("/v1/destinations/fuzz-1/messages", "/v1/destinations/fuzz-2/messages/%41", "/v1/destinations/..;/messages/%ff"),
]
TARGETS: Final = (b"fuzz-1", b"fuzz-2")
EVENTS: Final = (b"application/cloudevents+json", b"application/cloudevents-batch+json", b"1.0")


def codes(cls: type[BridgeError] = BridgeError) -> set[str]:
    below = {code for sub in cls.__subclasses__() for code in codes(sub)}
    return below | ({cls.code} if "code" in vars(cls) else set())


visible = st.integers(0x20, 0x7E) | st.integers(0x80, 0xFF)
texts = st.lists(visible, max_size=40).map(bytes).map(bytes.strip)
numbers = st.integers(-(2**70), 2**70).map(lambda n: b"%d" % n) | st.sampled_from([b"0", b"1", b"007", b"1e9", b""])
values = st.one_of(
    texts, numbers, st.sampled_from([*EVENTS, b"true", b"gzip", b"1.0.0", b"UTF-8''%41", b"UTF-8''%", *TARGETS])
)
tokens = st.text("abcdefghijklmnopqrstuvwxyz0123456789-._%*'", min_size=1, max_size=12).map(str.encode)
names = st.one_of(
    st.sampled_from(FIELDS).map(lambda f: f"x-oms-h-{f}".encode()),
    st.sampled_from(sorted(PARAMETERS)).map(lambda p: f"x-oms-{p}".encode()),
    tokens.map(lambda t: b"x-oms-p-" + t),
    tokens.map(lambda t: b"x-oms-" + t),
    st.sampled_from(
        [
            *(b"content-type", b"content-encoding", b"accept-encoding", b"traceparent", b"tracestate", b"origin"),
            *(b"accept", b"ce-specversion", b"ce-id", b"ce-source", b"ce-type", b"ce-time", b"ce-omsproperties"),
        ]
    ),
)
extended = st.booleans()
headers = st.lists(st.tuples(names, extended, values).map(lambda h: (h[0] + b"*" if h[1] else h[0], h[2])), max_size=8)
bodies = st.one_of(
    st.binary(max_size=400),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["header", "data", "properties", "destination", "qos", "id", "specversion", "time"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ).map(lambda document: json.dumps([document]).encode()),
    st.lists(st.binary(max_size=60), max_size=5).map(
        lambda parts: b"--b\r\n" + b"\r\n--b\r\n".join(parts) + b"\r\n--b--"
    ),
)
queries = st.one_of(
    st.just(""),
    st.lists(
        st.tuples(st.sampled_from(sorted((*PARAMETERS, *QUERY_NAMES))), st.text("abc019%+.,-", max_size=8)).map(
            "=".join
        ),
        max_size=4,
    ).map("&".join),
    st.text("abc=&%;+?/019", max_size=20),
)
requests = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["POST", "POST", "GET", "PUT"]),
        "path": st.sampled_from(["/v1/messages"] * 4 + PATHS),
        "query": queries,
        "version": st.sampled_from([[VERSION]] * 6 + [[]]),
        "kind": st.sampled_from(
            [[], [(b"content-type", b"application/json")], [(b"content-type", b"multipart/mixed; boundary=b")]]
        ),
        "target": st.sampled_from([[], [(b"x-oms-h-destination", TARGETS[0])], [(b"x-oms-source", TARGETS[1])]]),
        "headers": headers,
        "body": bodies,
    }
)


def without_waiting(pairs: list[Pair]) -> list[Pair]:
    """Let no pull wait, no message be delayed for long: the fuzz is about answers."""
    return [pair for pair in pairs if pair[0] not in (b"x-oms-waitmills", b"x-oms-waitmills*")]


def judge(answer: Answer) -> None:
    assert answer.status is not None, answer
    assert answer.status not in (500, 502), answer
    assert answer.ended == "complete", answer
    if answer.status >= 400:
        assert problem(answer)["code"] in codes()
    elif answer.status == 207:
        for result in json.loads(answer.body):
            assert result["status"] == 200 or (result["code"] in codes() and result["status"] < 500), result
    else:
        assert answer.status in (200, 204), answer


@pytest.fixture
def fuzzed(start: Start) -> Bridge:
    """Return a bridge of this test only, small enough to show what it keeps."""
    return start("memory://?max_messages=2000", OMS_LIMITS__BODY="65536", OMS_DELIVERY__LEASE="1000")


def test_whatever_is_asked_is_answered_by_the_book(fuzzed: Bridge) -> None:
    with Frames(fuzzed.url) as frames:
        target = fresh()

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            derandomize=not SOAK,  # else the same examples each time: a failure comes from the change alone
            print_blob=True,
        )
        @given(requests)
        def ask(request: dict[str, Any]) -> None:
            query = "&".join(part for part in request["query"].split("&") if not part.startswith("waitmills"))
            pairs = without_waiting([*request["version"], *request["kind"], *request["target"], *request["headers"]])
            judge(
                frames.ask(
                    request["method"],
                    f"{request['path']}?{query}" if query else request["path"],
                    pairs,
                    request["body"],
                )
            )

        ask()
        store(frames, target)
        assert stored(frames, target) == [b"good"]
    assert '"level": "error"' not in fuzzed.log


@MOSTLY_HYPERCORN
def test_thousands_of_bad_requests_leave_nothing_behind(fuzzed: Bridge) -> None:
    with Frames(fuzzed.url) as frames:

        def rounds(count: int) -> None:
            for number in range(count):
                streams = [
                    frames.request(
                        "POST",
                        "/v1/messages",
                        [VERSION, (b"x-oms-p-n%d" % n, b"x"), (b"x-oms-h-qos", b"9")],
                        b"x" * 2000,
                    )
                    for n in range(50)
                ]
                streams += [
                    frames.request("GET", f"/v1/messages?version=1.0.0&source=.{number}-{n}", [], b"")
                    for n in range(50)
                ]
                assert {frames.answer(stream).status for stream in streams} == {400}

        rounds(10)
        before = fuzzed.resident_bytes()
        rounds(ROUNDS)
        assert fuzzed.resident_bytes() - before < GROWTH
        target = fresh()
        store(frames, target)
        assert stored(frames, target) == [b"good"]
