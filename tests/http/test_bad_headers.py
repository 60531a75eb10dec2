"""Headers and parameters that are wrong: which one, what was wrong, what is allowed."""

import pytest

from tests.conformance.frames import Frames
from tests.http.asking import VERSION, Pair, fresh, producing, pull, pulling, refusal, store, stored

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
    b"\xc3\xbc",
    b"*",
)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_that_is_not_served_names_itself_and_what_is(frames: Frames, version: bytes) -> None:
    target = fresh()
    answer = frames.ask("POST", "/v1/messages", [(b"x-oms-version", version), (b"x-oms-h-destination", target)])
    code = "header-invalid" if version == b"\xff" else "version-unsupported"
    refusal(answer, 400, code, "x-oms-version")
    assert stored(frames, target) == []


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/ack", "/v1/nack", "/v1/extend"])
def test_a_missing_version_is_missed_on_every_path(frames: Frames, path: str) -> None:
    pairs = [(b"x-oms-h-destination", fresh()), (b"x-oms-receipt", b"r")]
    refusal(frames.ask("POST", path, pairs), 400, "header-missing", "x-oms-version", "1.0.0")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_none_is_refused_for_destination_source_and_group(frames: Frames, name: bytes) -> None:
    answer = frames.ask("POST", "/v1/messages", producing(name))
    refusal(answer, 400, "destination-invalid" if name else "header-invalid", "x-oms-h-destination")
    refusal(frames.ask("GET", "/v1/messages", pulling(name)), 400, "destination-invalid", "x-oms-source")
    answer = frames.ask("GET", "/v1/messages", pulling(fresh(), group=name))
    refusal(answer, 400, "destination-invalid", "x-oms-consumerid")


@pytest.mark.parametrize("field", LONGS)
@pytest.mark.parametrize("number", NUMBERS)
def test_a_long_that_is_none_is_refused(frames: Frames, field: str, number: bytes) -> None:
    target, header = fresh(), f"x-oms-h-{field}"
    answer = frames.ask("POST", "/v1/messages", producing(target, (header.encode(), number)))
    refusal(answer, 400, "header-invalid", header)
    assert stored(frames, target) == []


@pytest.mark.parametrize(
    ("field", "beyond"),
    [("qos", 3), ("durability", 2), ("priority", 2**31), ("partition", 2**31), ("delaytime", 2**63)],
)
def test_a_number_beyond_its_type_says_what_is_allowed(frames: Frames, field: str, beyond: int) -> None:
    answer = frames.ask("POST", "/v1/messages", producing(fresh(), (f"x-oms-h-{field}".encode(), b"%d" % beyond)))
    refusal(answer, 400, "header-invalid", f"x-oms-h-{field}", str(beyond), f"0 to {beyond - 1}")


@pytest.mark.parametrize("name", [b"waitmills", b"leasemills"])
@pytest.mark.parametrize("number", NUMBERS)
def test_a_duration_that_is_none_is_refused(frames: Frames, name: bytes, number: bytes) -> None:
    target = fresh()
    store(frames, target)
    refusal(pull(frames, target, (b"x-oms-" + name, number)), 400, "header-invalid", f"x-oms-{name.decode()}")
    assert stored(frames, target) == [b"good"]


def test_a_lease_of_nothing_or_beyond_the_limit_says_what_is_allowed(frames: Frames) -> None:
    for number in (b"0", b"900001"):
        answer = pull(frames, fresh(), (b"x-oms-leasemills", number))
        refusal(answer, 400, "header-invalid", "x-oms-leasemills", "900000")


@pytest.mark.parametrize("ack", [b"yes", b"1", b"", b"truth", b"true,true"])
def test_ack_is_true_or_false(frames: Frames, ack: bytes) -> None:
    answer = frames.ask("GET", "/v1/messages", pulling(fresh(), ack=ack))
    refusal(answer, 400, "header-invalid", "x-oms-ack", "true or false")


def test_a_request_id_has_a_length(frames: Frames) -> None:
    for given in (b"", b"r" * 201):
        refusal(pull(frames, fresh(), (b"x-oms-requestid", given)), 400, "header-invalid", "x-oms-requestid", "200")


@pytest.mark.parametrize(
    "pair",
    [
        (b"x-oms-h-messageid", b"m"),
        (b"x-oms-h-priority", b"3"),
        (b"x-oms-p-color", b"red"),
        (b"x-oms-h-destination", b"elsewhere"),
        VERSION,
    ],
)
def test_a_header_that_comes_twice_is_named(frames: Frames, pair: Pair) -> None:
    target = fresh()
    pairs = producing(target, *([] if pair[0] in (b"x-oms-h-destination", VERSION[0]) else [pair]), pair)
    refusal(frames.ask("POST", "/v1/messages", pairs), 400, "header-repeated", pair[0].decode(), "once")
    assert stored(frames, target) == []


@pytest.mark.parametrize("value", [b"\xff\xfe", b"caf\xe9", b"\xed\xa0\x80", b"\xc3"])
@pytest.mark.parametrize("name", [b"x-oms-h-messagekey", b"x-oms-p-note", b"x-oms-h-messageid", b"x-oms-require"])
def test_bytes_that_are_no_text_are_refused(frames: Frames, name: bytes, value: bytes) -> None:
    target = fresh()
    answer = frames.ask("POST", "/v1/messages", producing(target, (name, value)))
    refusal(answer, 400, "header-invalid", name.decode(), "UTF-8")
    assert stored(frames, target) == []


@pytest.mark.parametrize("value", [b"a\x01b", b"a\x7fb", b"\x1b[2J"])
def test_control_characters_never_get_in_raw(frames: Frames, value: bytes) -> None:
    target = fresh()
    answer = frames.ask("POST", "/v1/messages", producing(target, (b"x-oms-p-note", value)))
    if answer.status is not None:  # a server may refuse the stream itself, as HTTP allows
        assert answer.status == 400, answer
    with_fresh_eyes = stored(frames, target) if answer.ended != "closed" else []
    assert with_fresh_eyes == []


def test_a_mistyped_header_is_an_error_not_a_silence(frames: Frames) -> None:
    for name in (b"x-oms-h-prio", b"x-oms-waitmilis", b"x-oms-", b"x-oms-h-"):
        answer = frames.ask("POST", "/v1/messages", producing(fresh(), (name, b"1")))
        refusal(answer, 400, "header-invalid", name.decode())


@pytest.mark.parametrize("pair", [(b"content-type", b"text/\xff"), (b"content-type", b"multipart/related; boundary=b")])
def test_a_media_type_that_cannot_be_handed_on_is_refused_or_survives(frames: Frames, pair: Pair) -> None:
    target = fresh()
    answer = frames.ask("POST", "/v1/messages", producing(target, pair), b"body")
    if answer.status != 200:
        refusal(answer, 400, "header-invalid", "content-type")
    assert stored(frames, target) == ([b"body"] if answer.status == 200 else [])
