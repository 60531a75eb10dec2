"""Headers and parameters that are wrong: which one, what was wrong, what is allowed."""

import pytest

from tests.conformance.frames import Frames
from tests.http.asking import VERSION, fresh, producing, pull, pulling, refusal, store, stored
from tests.launch import Bridge

LONGS = ("borntimestamp", "expiretime", "delaytime", "storetimestamp")
NUMBERS = (b"x", b"-1", b"+1", b"", b"1.0", b"1e3", b"9223372036854775808", b"1" * 400, b"1 1", b"\xd9\xa3", b"0x1")
VERSIONS = (b"2.0.0", b"1", b"1.0", b"", b"one", b"1.0.0 beta", b"1.0.0,1.0.0", b"\xff", b"1." + b"0" * 999)
NAMES = (
    b"",
    b".",
    b"..",
    b"a/b",
    b"a b",
    b"a" * 250,
    b"__consumer_offsets",
    b"amq.direct",
    b"oms.x",
    b"*",
)


def short(*case: object) -> str:
    """Return the name of a subtest, which is also the body that is sent: what is stored says which case it was."""
    return " ".join(each if isinstance(each, str) else repr(each) for each in case)[:80]


def test_a_version_that_is_not_served_names_itself_and_what_is(frames: Frames, subtests: pytest.Subtests) -> None:
    target = fresh()
    for version in VERSIONS:
        with subtests.test(case := short(version)):
            pairs = [(b"x-oms-version", version), (b"x-oms-h-destination", target)]
            answer = frames.ask("POST", "/v1/messages", pairs, case.encode())
            code = "header-invalid" if version == b"\xff" else "version-unsupported"
            refusal(answer, 400, code, "x-oms-version")
    assert stored(frames, target) == []


def test_a_missing_version_is_missed_on_every_path(frames: Frames, subtests: pytest.Subtests) -> None:
    for path in ("/v1/messages", "/v1/ack", "/v1/nack", "/v1/extend"):
        with subtests.test(path):
            pairs = [(b"x-oms-h-destination", fresh()), (b"x-oms-receipt", b"r")]
            refusal(frames.ask("POST", path, pairs), 400, "header-missing", "x-oms-version", "1.0.0")


def test_a_name_that_is_none_is_refused_for_destination_source_and_group(
    frames: Frames, subtests: pytest.Subtests
) -> None:
    for name in NAMES:
        with subtests.test(short(name)):
            answer = frames.ask("POST", "/v1/messages", producing(name))
            refusal(answer, 400, "destination-invalid" if name else "header-invalid", "x-oms-h-destination")
            refusal(frames.ask("GET", "/v1/messages", pulling(name)), 400, "destination-invalid", "x-oms-source")
            answer = frames.ask("GET", "/v1/messages", pulling(fresh(), group=name))
            refusal(answer, 400, "destination-invalid", "x-oms-consumerid")


def test_a_long_that_is_none_is_refused(frames: Frames, subtests: pytest.Subtests) -> None:
    target = fresh()
    for field in LONGS:
        for number in NUMBERS:
            with subtests.test(case := short(field, number)):
                pairs = producing(target, (f"x-oms-h-{field}".encode(), number))
                refusal(frames.ask("POST", "/v1/messages", pairs, case.encode()), 400, "header-invalid", field)
    assert stored(frames, target) == []


def test_a_number_beyond_its_type_says_what_is_allowed(frames: Frames, subtests: pytest.Subtests) -> None:
    beyond = {"qos": 3, "durability": 2, "priority": 2**31, "partition": 2**31, "delaytime": 2**63}
    for field, number in beyond.items():
        with subtests.test(field):
            pairs = producing(fresh(), (f"x-oms-h-{field}".encode(), b"%d" % number))
            answer = frames.ask("POST", "/v1/messages", pairs)
            refusal(answer, 400, "header-invalid", f"x-oms-h-{field}", str(number), f"0 to {number - 1}")


def test_a_duration_that_is_none_is_refused(frames: Frames, subtests: pytest.Subtests) -> None:
    target = fresh()
    store(frames, target)
    for name in (b"waitmills", b"leasemills"):
        for number in NUMBERS:
            with subtests.test(short(name, number)):
                answer = pull(frames, target, (b"x-oms-" + name, number))
                refusal(answer, 400, "header-invalid", f"x-oms-{name.decode()}")
    assert stored(frames, target) == [b"good"]


def test_a_lease_of_nothing_or_beyond_the_limit_says_what_is_allowed(frames: Frames) -> None:
    for number in (b"0", b"900001"):
        answer = pull(frames, fresh(), (b"x-oms-leasemills", number))
        refusal(answer, 400, "header-invalid", "x-oms-leasemills", "900000")


def test_ack_is_true_or_false(frames: Frames, subtests: pytest.Subtests) -> None:
    for ack in (b"yes", b"1", b"", b"truth", b"true,true"):
        with subtests.test(short(ack)):
            answer = frames.ask("GET", "/v1/messages", pulling(fresh(), ack=ack))
            refusal(answer, 400, "header-invalid", "x-oms-ack", "true or false")


def test_a_request_id_has_a_length(frames: Frames) -> None:
    for given in (b"", b"r" * 201):
        refusal(pull(frames, fresh(), (b"x-oms-requestid", given)), 400, "header-invalid", "x-oms-requestid", "200")


def test_a_header_that_comes_twice_is_named(frames: Frames, subtests: pytest.Subtests) -> None:
    target = fresh()
    for pair in (
        (b"x-oms-h-messageid", b"m"),
        (b"x-oms-h-priority", b"3"),
        (b"x-oms-p-color", b"red"),
        (b"x-oms-h-destination", b"elsewhere"),
        VERSION,
    ):
        with subtests.test(case := pair[0].decode()):
            pairs = producing(target, *([] if pair[0] in (b"x-oms-h-destination", VERSION[0]) else [pair]), pair)
            answer = frames.ask("POST", "/v1/messages", pairs, case.encode())
            refusal(answer, 400, "header-repeated", pair[0].decode(), "once")
    assert stored(frames, target) == []


def test_bytes_outside_ascii_are_refused(frames: Frames, subtests: pytest.Subtests) -> None:
    target = fresh()
    for name in (b"x-oms-h-messagekey", b"x-oms-p-note", b"x-oms-h-messageid", b"x-oms-require"):
        for value in (b"\xff\xfe", b"caf\xe9", b"\xed\xa0\x80", b"\xc3", "é".encode()):
            with subtests.test(case := short(name, value)):
                answer = frames.ask("POST", "/v1/messages", producing(target, (name, value)), case.encode())
                refusal(answer, 400, "header-invalid", name.decode(), "outside ASCII")
    assert stored(frames, target) == []


def test_control_characters_never_get_in_raw(bridge: Bridge, subtests: pytest.Subtests) -> None:
    """A server may refuse the stream or end the connection itself, as HTTP allows."""
    target = fresh()
    for value in (b"a\x01b", b"a\x7fb", b"\x1b[2J"):
        with subtests.test(case := short(value)), Frames(bridge.url) as frames:
            answer = frames.ask("POST", "/v1/messages", producing(target, (b"x-oms-p-note", value)), case.encode())
            assert answer.status in (400, None), answer
    with Frames(bridge.url) as frames:
        assert stored(frames, target) == []


def test_a_mistyped_header_is_an_error_not_a_silence(frames: Frames) -> None:
    for name in (b"x-oms-h-prio", b"x-oms-waitmilis", b"x-oms-", b"x-oms-h-"):
        answer = frames.ask("POST", "/v1/messages", producing(fresh(), (name, b"1")))
        refusal(answer, 400, "header-invalid", name.decode())


def test_a_media_type_that_cannot_be_handed_on_is_refused_or_survives(
    frames: Frames, subtests: pytest.Subtests
) -> None:
    for value in (b"text/\xff", b"multipart/related; boundary=b"):
        with subtests.test(short(value)):
            target = fresh()
            answer = frames.ask("POST", "/v1/messages", producing(target, (b"content-type", value)), b"body")
            if answer.status != 200:
                refusal(answer, 400, "header-invalid", "content-type")
            assert stored(frames, target) == ([b"body"] if answer.status == 200 else [])
