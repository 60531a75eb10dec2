"""Produce by URL over frames: what is stored, what is refused, and who may send it."""

import asyncio
import json
from itertools import product

import httpx
import pytest

from tests.conformance.frames import Frames
from tests.http.asking import fresh, pull, refusal, stored
from tests.http.conftest import Start
from tests.launch import Bridge


def messages(destination: bytes) -> str:
    return f"/v1/destinations/{destination.decode()}/messages"


def test_a_request_without_headers_is_stored_by_the_same_rules(frames: Frames) -> None:
    target = fresh()
    answer = frames.ask("POST", f"{messages(target)}?key=a%20b&priority=9", [], b"bare")
    assert answer.status == 200, answer
    assert json.loads(answer.body)["messageId"] == answer.headers[b"x-oms-h-messageid"].decode()
    pulled = pull(frames, target)
    assert (pulled.body, pulled.headers[b"x-oms-h-messagekey"]) == (b"bare", b"a b")
    assert (pulled.headers[b"x-oms-h-priority"], pulled.headers[b"content-type"]) == (b"9", b"application/octet-stream")


def test_a_large_body_arrives_in_parts_with_either_method(frames: Frames, subtests: pytest.Subtests) -> None:
    for method, path in (("POST", ""), ("PUT", "/large")):
        with subtests.test(method):
            target, body = fresh(), method.encode() * 100_000
            assert frames.ask(method, messages(target) + path, [], body).status == 200
            assert stored(frames, target) == [body]


async def test_httpx_produces_at_once_over_one_connection(bridge: Bridge) -> None:
    """It sends the end of a body on its own, and fails if the response resets the stream before."""
    path = messages(fresh())
    async with httpx.AsyncClient(base_url=bridge.url, http1=False, http2=True, timeout=60) as client:
        for _ in range(5):
            answers = await asyncio.gather(*(client.post(path, content=b"x") for _ in range(50)))
            assert {answer.status_code for answer in answers} == {200}


def test_limits_and_errors_are_those_of_every_produce(frames: Frames, subtests: pytest.Subtests) -> None:
    target = fresh()
    path = messages(target)
    gzip = (b"content-encoding", b"gzip")
    cases: dict[str, tuple[str, list[tuple[bytes, bytes]], int, str]] = {
        "destination": ("/v1/destinations/amq.x/messages", [], 400, "destination-invalid"),
        "escaped destination": ("/v1/destinations/a%2Fb/messages", [], 400, "destination-invalid"),
        "dead letters": ("/v1/destinations/orders.dlq/messages", [], 400, "destination-invalid"),
        "another destination": (path, [(b"x-oms-h-destination", b"other")], 400, "header-repeated"),
        "version": (path, [(b"x-oms-version", b"2.0.0")], 400, "version-unsupported"),
        "partition": (f"{path}?partition=999", [], 400, "partition-unknown"),
        "require": (f"{path}?require=speed", [], 400, "header-invalid"),
        "qos": (f"{path}?require=qos&qos=2", [], 422, "field-unsupported"),
        "gzip": (path, [gzip], 400, "body-invalid"),
        "compression": (f"{path}?compression=zip", [], 400, "header-invalid"),
        "query": (f"{path}?key=%ff", [], 400, "header-invalid"),
        "header": (path, [(b"x-oms-h-messagekee", b"k")], 400, "header-invalid"),
        "delay": (f"{path}?delay=400d", [], 400, "header-invalid"),
        "size": (f"{path}?key={'k' * 31_000}", [(b"x-oms-p-a", b"p" * 31_000)], 431, "headers-too-large"),
    }
    for what, (where, pairs, status, code) in cases.items():
        for method in ("POST", "PUT"):
            with subtests.test(f"{method} {what}"):
                before, mark, query = where.partition("?")
                target_path = f"{before}/id{mark}{query}" if method == "PUT" else where
                refusal(frames.ask(method, target_path, pairs, b"no"), status, code)
    assert stored(frames, target) == []


def test_a_body_above_the_limit_is_refused(start: Start) -> None:
    with Frames(start(OMS_LIMITS__BODY="100000").url) as frames:
        target = fresh()
        refusal(frames.ask("PUT", f"{messages(target)}/id", [], b"x" * 100_001), 413, "body-too-large")
        assert stored(frames, target) == []


def test_other_methods_are_refused_and_the_preflight_is_answered(start: Start, subtests: pytest.Subtests) -> None:
    page = (b"origin", b"https://shop.example")
    with Frames(start(OMS_HTTP__ORIGINS="https://shop.example", OMS_HTTP__HOSTS="bridge.lan").url) as frames:
        for path, allowed in ((messages(b"orders"), b"POST"), (f"{messages(b'orders')}/7", b"PUT")):
            for method in {"GET", "PUT", "POST", "DELETE"} - {allowed.decode()}:
                with subtests.test(f"{method} {path}"):
                    answer = frames.ask(method, path)
                    refusal(answer, 405, "method-not-allowed", path)
                    assert answer.headers[b"allow"] == allowed
            with subtests.test(f"OPTIONS {path}"):
                answer = frames.ask("OPTIONS", path, [page, (b"access-control-request-method", allowed)])
                assert answer.status == 204
                assert allowed in answer.headers[b"access-control-allow-methods"]


def test_a_page_of_another_origin_produces_nothing(start: Start, subtests: pytest.Subtests) -> None:
    """A form can send text/plain, and needs no header that a browser would ask about first."""
    target = fresh()
    form = (b"content-type", b"text/plain")
    with Frames(start(OMS_HTTP__ORIGINS="https://shop.example", OMS_HTTP__HOSTS="bridge.lan").url) as frames:
        loopback = frames.authority
        for origin, host in product((b"https://evil.example", b"null"), (loopback, b"bridge.lan", b"10.1.2.3:8080")):
            with subtests.test(f"{origin!r} to {host!r}"):
                frames.authority = host
                answer = frames.ask("POST", messages(target), [form, (b"origin", origin)], b"forged")
                refusal(answer, 403, "forbidden", "origin", "http.origins")
        frames.authority = b"rebound.example"
        own = (b"origin", b"http://rebound.example")
        refusal(frames.ask("POST", messages(target), [form, own], b"forged"), 403, "forbidden", "host", "http.hosts")
        frames.authority = loopback
        page = (b"origin", b"https://shop.example")
        assert frames.ask("POST", messages(target), [form, page], b"allowed").status == 200
        assert stored(frames, target) == [b"allowed"]


def test_a_put_that_never_sends_its_body_stores_nothing(bridge: Bridge) -> None:
    target = fresh()
    with Frames(bridge.url) as frames:
        assert frames.ask("PUT", f"{messages(target)}/one", [], b"").status == 200
        assert frames.ask("PUT", f"{messages(target)}/two", [(b"content-length", b"9")], b"short").status != 200
    with Frames(bridge.url) as frames:
        assert stored(frames, target) == [b""]
