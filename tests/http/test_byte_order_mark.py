"""A UTF-8 byte order mark, as some editors and programs write it, is skipped wherever the bridge reads text."""

import json
from codecs import BOM_UTF8
from pathlib import Path

import pytest

from tests.conformance.frames import Frames
from tests.http.asking import VERSION, Pair, fresh, post, producing, pull, store, stored
from tests.http.conftest import Start
from tests.http.test_produce_stream import line
from tests.http.test_webhooks import KEYS, messages, signed
from tests.launch import Bridge


def content(media_type: bytes) -> Pair:
    return b"content-type", media_type


def test_bodies_that_the_bridge_reads(frames: Frames, subtests: pytest.Subtests) -> None:
    event = b'{"specversion": "1.0", "id": "%b", "source": "/shop", "type": "t", "data": 7}'
    target = fresh()
    item = line(target, b"7").strip()
    multipart = b"--b\r\nx-oms-h-destination: %b\r\n\r\n7\r\n--b--\r\n"
    requests: dict[bytes, tuple[list[Pair], bytes]] = {
        b"application/cloudevents+json": (producing(target), event % b"1"),
        b"application/cloudevents-batch+json": (producing(target), b"[%b]" % (event % b"2")),
        b"application/json": ([VERSION], b"[%b]" % item),
        b"multipart/mixed; boundary=b": ([VERSION], multipart % target),
    }
    for media_type, (headers, body) in requests.items():
        with subtests.test(media_type=media_type):
            answer = post(frames, [*headers, content(media_type)], BOM_UTF8 + body)
            assert answer.status == 200, answer
            assert stored(frames, target) == [b"7"]


def test_lines_of_a_produce_stream(frames: Frames) -> None:
    """A mark stands before the first line of a file; and in the middle if a second file was appended."""
    target, long = fresh(), b"3" * 40_000
    first, second, third = (line(target, body) for body in (b"1", b"2", long))
    body = b"".join((BOM_UTF8, first, second, BOM_UTF8, third, BOM_UTF8, b"\n", BOM_UTF8))
    answer = post(frames, [VERSION, content(b"application/x-ndjson")], body, "/v1/stream")
    results = [json.loads(result) for result in answer.body.splitlines()]
    assert [result.get("status", result.get("end")) for result in results] == [200, 200, 200, "complete"]
    assert sorted(stored(frames, target)) == [b"1", b"2", long]


def test_the_body_of_a_message_keeps_it(frames: Frames) -> None:
    target = fresh()
    body = BOM_UTF8 + b"{}"
    store(frames, target, body, content(b"application/json"))
    assert stored(frames, target) == [body]
    pulled = pull(frames, target, (b"accept", b"application/cloudevents+json"), group=b"events")
    answer = post(frames, [*producing(target), content(b"application/cloudevents+json")], pulled.body)
    assert answer.status == 200, answer
    assert pull(frames, target, group=b"inspector").body == body


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("marked")
    (folder / "keys").write_text("\n".join(KEYS), "utf-8-sig")
    config = folder / "bridge.yaml"
    verify = f"{{scheme: github, secret_file: {folder / 'keys'}}}"
    config.write_text(f"destinations: {{github: {{verify: {verify}}}}}\n", "utf-8-sig")
    return config


def test_the_settings_and_a_file_of_secrets(start: Start, config: Path) -> None:
    bridge: Bridge = start(OMS_CONFIG=str(config))
    with Frames(bridge.url) as frames:
        for key in KEYS:
            assert frames.ask("POST", messages("github"), [signed(b"x", key)], b"x").status == 200
        assert frames.ask("POST", messages("github"), [], b"x").status == 401
