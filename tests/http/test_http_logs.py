"""The log: one JSON object a line, whatever a client sends, and nothing in it that is the client's own."""

import json
import re

import pytest

from tests.conformance.frames import Frames
from tests.http.asking import VERSION, fresh, post, producing, pull, stored
from tests.http.conftest import MOSTLY_HYPERCORN, Start

pytestmark = MOSTLY_HYPERCORN

FORGED = '{"level": "critical", "message": "forged"}'
INJECTIONS = (
    f"x\n{FORGED}",
    f"x\r\n{FORGED}",
    f"x\u2028{FORGED}",
    "x\x1b[2J\x00",
    '"}\n{"level":"critical',
    "%s%d%n",
    "{0}",
)
SECRET = "sesame-0xC0FFEE"  # noqa: S105 - what must not show up


def escaped(text: str) -> bytes:
    return b"UTF-8''" + b"".join(b"%%%02x" % byte for byte in text.encode())


@pytest.mark.parametrize("level", ["debug", "info"])
def test_no_client_can_forge_a_line_of_the_log(start: Start, level: str) -> None:
    bridge = start("memory://?partitions=1", OMS_LOG__LEVEL=level, OMS_DELIVERY__MAX_DELIVERIES="1")
    with Frames(bridge.url) as frames:
        for text in INJECTIONS:
            target = fresh()
            raw = text.encode()
            quoted = raw.replace(b"%", b"%25").replace(b"\n", b"%0a").replace(b"\r", b"%0d").replace(b"\0", b"%00")
            path = quoted.replace(b" ", b"%20").replace(b"\x1b", b"%1b").decode("latin-1")
            pairs = producing(
                target,
                (b"x-oms-h-messageid*", escaped(re.sub(r"[\0-\x1f]", "", text))),
                (b"x-oms-h-correlationid*", escaped(text)),
                (b"x-oms-p-n*", escaped(text)),
                (b"content-type", b"a/b"),
            )
            post(frames, producing(target, (b"x-oms-h-messageid*", escaped(text + "\n"))))  # a 400
            assert post(frames, pairs, text.encode()).status == 200
            frames.ask("GET", f"/{path}", [VERSION])
            frames.ask("GET", f"/v1/messages?source={path}&version={path}", [])
            post(frames, [VERSION, (b"content-type", b"application/json")], json.dumps([text, {text: 1}]).encode())
            post(frames, [VERSION, (b"x-oms-receipt", b"{0}%s")], path="/v1/ack")
            answer = pull(frames, target)  # the only delivery it may have: after this it becomes a dead letter
            receipt = answer.headers[b"x-oms-receipt"]
            post(frames, [VERSION, (b"x-oms-receipt", receipt)], path="/v1/nack")
            assert pull(frames, target + b".dlq", (b"x-oms-waitmills", b"10000")).status == 200
    lines = bridge.log.splitlines()
    dead = 0
    for line in lines:
        entry = json.loads(line)
        assert {"time", "level", "logger", "message"} <= set(entry)
        assert entry["level"] != "critical"
        assert "forged" not in entry["message"]
        dead += entry["message"] == "dead letter"
    assert dead >= len(INJECTIONS)
    assert bridge.log.isascii()


def test_no_body_and_no_secret_is_logged(start: Start) -> None:
    bridge = start(OMS_LOG__LEVEL="debug", OMS_LIMITS__BODY="2000")
    with Frames(bridge.url) as frames:
        target = fresh()
        secret = SECRET.encode()
        pairs = producing(target, (b"x-oms-p-token", secret), (b"authorization", b"Bearer " + secret))
        assert post(frames, pairs, secret).status == 200
        assert post(frames, pairs, secret * 500).status == 413
        post(frames, [*pairs, (b"x-oms-h-qos", secret)], secret)
        post(frames, [*pairs, (b"x-oms-h-compression", b"gzip")], secret)
        post(frames, [VERSION, (b"content-type", b"application/json"), (b"cookie", secret)], b"[" + secret)
        frames.ask("GET", f"/v1/messages?receipt={SECRET}", [VERSION])
        frames.ask("GET", f"/v1/messages/{SECRET}", [VERSION])
        assert stored(frames, target) == [secret]
    assert SECRET not in bridge.log
