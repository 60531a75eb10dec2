"""Too much: quotas, messages in flight, a full backend, too many pulls."""

import pytest

from tests.conformance.frames import Frames
from tests.http.asking import fresh, post, producing, pull, pulling, refusal, store, stored
from tests.http.conftest import MOSTLY_HYPERCORN, Start
from tests.http.streaming import gauges

pytestmark = MOSTLY_HYPERCORN


def test_a_quota_is_kept_per_destination(start: Start) -> None:
    with Frames(start(OMS_LIMITS__QUOTA="2").url) as frames:
        target = fresh()
        # at once: one after the other they would take as long as the quota allows, on a busy machine
        streams = [frames.request("POST", "/v1/messages", producing(target), b"%d" % number) for number in range(40)]
        answers = [frames.answer(stream) for stream in streams]
        refused = [answer for answer in answers if answer.status != 200]
        assert refused
        for answer in refused:
            document = refusal(answer, 429, "quota-exceeded", target.decode(), "2 messages a second")
            assert document["retrySafe"] is False  # a 4xx always means "not stored"
            assert answer.headers[b"retry-after"] == b"1"
        kept = [b"%d" % number for number, answer in enumerate(answers) if answer.status == 200]
        store(frames, fresh())
        assert sorted(stored(frames, target)) == sorted(kept)


def test_a_full_backend_says_so_and_goes_on_when_there_is_room(start: Start) -> None:
    with Frames(start("memory://?max_messages=3").url) as frames:
        target = fresh()
        assert pull(frames, target).status == 204  # a group that has yet to read them: nothing may be dropped
        answers = [post(frames, producing(target), b"%d" % number) for number in range(5)]
        assert [answer.status for answer in answers] == [200, 200, 200, 503, 503]
        for answer in answers[3:]:
            refusal(answer, 503, "backend-full")
            assert answer.headers[b"x-oms-retry-safe"] == b"true"
            assert int(answer.headers[b"retry-after"]) >= 1
        taken = frames.ask("GET", "/v1/messages", pulling(target, ack=b"false"))
        assert taken.status == 200
        assert post(frames, producing(target), b"5").status == 200
        rest = [frames.ask("GET", "/v1/messages", pulling(target, ack=b"false")).body for _ in range(3)]
        assert sorted([taken.body, *rest]) == [b"0", b"1", b"2", b"5"]


def test_too_many_waiting_pulls_are_refused(start: Start) -> None:
    with Frames(start(OMS_LIMITS__WAITING_PULLS="3").url) as frames:
        target = fresh()
        wait = (b"x-oms-waitmills", b"20000")
        assert pull(frames, target).status == 204  # the group is joined: from here on each pull is counted at once
        waiting = [frames.request("GET", "/v1/messages", pulling(target, wait), b"") for _ in range(3)]
        answer = frames.ask("GET", "/v1/messages", pulling(target, wait))
        refusal(answer, 503, "too-many-in-flight", "3 waiting pulls")
        assert pull(frames, target).status == 204
        for _ in waiting:
            store(frames, target)
        assert [frames.answer(stream).status for stream in waiting] == [200] * 3


def test_messages_in_flight_are_bounded(start: Start, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A journal's commit takes a while: what comes meanwhile is in flight."""
    journal = tmp_path_factory.mktemp("journal")
    with Frames(start(f"memory://?journal={journal}", OMS_LIMITS__IN_FLIGHT="1").url) as frames:
        target = fresh()
        streams = [frames.request("POST", "/v1/messages", producing(target), b"%d" % n) for n in range(100)]
        answers = [frames.answer(stream) for stream in streams]
        refused = [answer for answer in answers if answer.status != 200]
        assert refused, "the journal was too quick for this test"
        for answer in refused:
            refusal(answer, 503, "too-many-in-flight", "at most 1")
            assert answer.headers[b"x-oms-retry-safe"] == b"true"
        kept = sorted(b"%d" % n for n, answer in enumerate(answers) if answer.status == 200)
        assert sorted(stored(frames, target)) == kept
        store(frames, target)


def test_bytes_in_flight_are_bounded(start: Start, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of bodies with 600 bytes only one at a time fits into 1000, however many messages may be in flight."""
    journal = tmp_path_factory.mktemp("journal")
    settings = {"OMS_LIMITS__BODY": "1000", "OMS_LIMITS__IN_FLIGHT_BYTES": "1000", "OMS_LIMITS__IN_FLIGHT": "100000"}
    bridge = start(f"memory://?journal={journal}", **settings)
    with Frames(bridge.url) as frames:
        target = fresh()
        bodies = [b"%d" % number + bytes(597) for number in range(100, 200)]
        streams = [frames.request("POST", "/v1/messages", producing(target), body) for body in bodies]
        answers = [frames.answer(stream) for stream in streams]
        refused = [answer for answer in answers if answer.status != 200]
        assert refused, "the journal was too quick for this test"
        for answer in refused:
            refusal(
                answer,
                503,
                "too-many-in-flight",
                f"1 messages with {600 + len(target)} bytes",
                "at most 100000 with 1000",
            )
            assert answer.headers[b"x-oms-retry-safe"] == b"true"
        kept = [body for body, answer in zip(bodies, answers, strict=True) if answer.status == 200]
        assert sorted(stored(frames, target)) == sorted(kept)
        assert gauges(bridge)["oms_in_flight_bytes"] == 0
        store(frames, fresh(), bytes(1000))
        refusal(post(frames, producing(fresh()), bytes(1001)), 413, "body-too-large")
