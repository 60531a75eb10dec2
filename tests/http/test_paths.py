"""Paths, methods, hosts and origins."""

import httpx
import pytest

from tests.conformance.frames import Frames
from tests.http.asking import VERSION, fresh, post, producing, pulling, refusal, store, stored
from tests.http.conftest import Start
from tests.launch import Bridge

PATHS = ("/v1/messages", "/v1/ack", "/v1/nack", "/v1/extend", "/v1/capabilities")
METHODS = ("PUT", "DELETE", "PATCH", "HEAD", "TRACE", "BREW", "GET", "POST")
ALLOWED = {
    "/v1/messages": {"GET", "POST"},
    "/v1/ack": {"POST"},
    "/v1/nack": {"POST"},
    "/v1/extend": {"POST"},
    "/v1/capabilities": {"GET"},
}
HOSTS = (b"evil.example", b"evil.example:80", b"localhost.evil.example", b"127.0.0.1.evil.example", b"", b"a/b", b"[")


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v1/messages/", "/v1//messages", "/v2/messages", "/../v1/messages", "/%00", "/%e9"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_path_says_which_there_are(frames: Frames, method: str, path: str) -> None:
    answer = frames.ask(method, path, [VERSION])
    refusal(answer, 404, "not-found", "/v1/messages")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", METHODS)
def test_an_unknown_method_says_which_there_are(frames: Frames, method: str, path: str) -> None:
    if method in ALLOWED[path]:
        return
    answer = frames.ask(method, path, [VERSION])
    assert answer.status == 405
    assert answer.headers[b"allow"].decode() == ", ".join(sorted(ALLOWED[path], reverse=True))
    if method != "HEAD":
        refusal(answer, 405, "method-not-allowed", path, method)


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_is_not_served_is_refused(bridge: Bridge, host: bytes) -> None:
    target = fresh()
    with Frames(bridge.url) as frames:
        honest, frames.authority = frames.authority, host
        answer = post(frames, producing(target), b"rebound")
        if answer.status is not None and answer.ended == "complete":
            assert answer.status in (400, 403), answer
            if b"x-oms-error" in answer.headers:
                refusal(answer, 403, "forbidden", "host", "http.hosts")
    with Frames(bridge.url) as frames:
        assert frames.authority == honest
        assert stored(frames, target) == []


@pytest.mark.parametrize("path", ["/v1/messages", "/nowhere"])
@pytest.mark.parametrize("host", [b"evil.example/#", b"[", b"a b", b"x/v1/messages?"])
def test_a_forged_host_cannot_break_an_error(bridge: Bridge, host: bytes, path: str) -> None:
    with Frames(bridge.url) as frames:
        frames.authority = host
        answer = frames.ask("DELETE", path, [VERSION])
        assert answer.status in (None, 400, 403, 404, 405), answer


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:80", "10.1.2.3"])
def test_loopback_and_addresses_are_always_served(bridge: Bridge, host: str) -> None:
    with Frames(bridge.url) as frames:
        frames.authority = host.encode()
        store(frames, fresh())


def test_a_host_of_the_settings_is_served(start: Start) -> None:
    with Frames(start(OMS_HTTP__HOSTS="bridge.shop.svc").url) as frames:
        frames.authority = b"Bridge.Shop.svc:8080"
        store(frames, fresh())
        frames.authority = b"other.shop.svc"
        refusal(post(frames, producing(fresh())), 403, "forbidden", "other.shop.svc")


@pytest.mark.parametrize("origin", [b"https://evil.example", b"null", b"", b"http://127.0.0.1:1", b"\xff"])
def test_a_page_of_another_origin_is_refused(frames: Frames, origin: bytes) -> None:
    target = fresh()
    answer = post(frames, producing(target, (b"origin", origin)), b"forged")
    refusal(answer, 403, "forbidden", "origin", "http.origins")
    assert b"access-control-allow-origin" not in answer.headers
    preflight = frames.ask(
        "OPTIONS", "/v1/messages", [(b"origin", origin), (b"access-control-request-method", b"POST")]
    )
    refusal(preflight, 403, "forbidden", "origin")
    assert stored(frames, target) == []


def test_a_page_of_a_named_origin_is_served_and_may_read_the_answer(start: Start) -> None:
    shop = (b"origin", b"https://shop.example")
    with Frames(start(OMS_HTTP__ORIGINS="https://shop.example").url) as frames:
        preflight = frames.ask("OPTIONS", "/v1/messages", [shop, (b"access-control-request-method", b"POST")])
        assert preflight.status == 204
        assert preflight.headers[b"access-control-allow-origin"] == shop[1]
        assert b"POST" in preflight.headers[b"access-control-allow-methods"]
        for answer in (
            post(frames, producing(fresh(), shop)),
            frames.ask("GET", "/v1/messages", pulling(fresh(), shop)),
            post(frames, producing(b"..", shop)),
        ):
            assert answer.headers[b"access-control-allow-origin"] == shop[1]
            assert answer.headers[b"vary"] == b"origin"


@pytest.mark.parametrize(
    "query", ["?a=b", "?version=2", "?source=%zz", "?%", "?version=1.0.0&version=1.0.0", "?\xff=1"]
)
def test_a_query_that_means_nothing_is_refused_where_there_is_one(frames: Frames, query: str) -> None:
    answer = frames.ask("GET", f"/v1/messages{query}")
    if answer.status is not None:
        assert answer.status == 400, answer
        refusal(answer, 400, answer.headers[b"x-oms-error"].decode())


def test_a_produce_takes_no_query_it_would_not_obey(frames: Frames) -> None:
    target = fresh()
    answer = frames.ask("POST", "/v1/messages?require=qos", producing(target), b"?")
    refusal(answer, 400, "header-invalid", "query")
    assert stored(frames, target) == []


def test_http1_gets_the_same_answers(bridge: Bridge) -> None:
    with httpx.Client(base_url=bridge.url, trust_env=False, timeout=20) as http:
        answer = http.post("/v1/messages", headers={"x-oms-version": "1.0.0", "x-oms-h-destination": ".."})
        assert (answer.http_version, answer.status_code) == ("HTTP/1.1", 400)
        assert answer.json()["code"] == answer.headers["x-oms-error"] == "destination-invalid"
        assert http.get("/nowhere").json()["code"] == "not-found"
        assert http.head("/v1/messages").status_code == 405
