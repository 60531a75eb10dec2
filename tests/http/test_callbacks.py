"""Callback push on real bridges: who may register, what the endpoint gets, what each of its answers does."""

import base64
import gzip
import hmac
import json
from collections import defaultdict
from typing import Final

import httpx
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from bridge.wire.stream_framings import decode_message
from tests.http.callback_endpoint import (
    OK,
    SECRET,
    Answer,
    Endpoint,
    Posted,
    ask,
    listed,
    produce,
    pull,
    register,
    settled,
    wait_until,
)
from tests.http.conftest import MOSTLY_HYPERCORN, Start
from tests.launch import Bridge

pytestmark = MOSTLY_HYPERCORN

REFUSED: Final[tuple[tuple[dict[str, str | None], int, str], ...]] = (
    ({"callbackurl": "https://elsewhere.example/"}, 403, "callback-refused"),
    ({"callbackurl": "http://127.0.0.1:1/"}, 403, "callback-refused"),
    ({"callbackurl": "http://u:p@127.0.0.1/"}, 400, "header-invalid"),
    ({"callbackurl": "file:///etc/passwd"}, 400, "header-invalid"),
    ({"callbackurl": None}, 400, "header-missing"),
    ({"source": None}, 400, "header-missing"),
    ({"consumerid": None}, 400, "header-missing"),
    ({"consumerid": "a/b"}, 400, "destination-invalid"),
    ({"version": None}, 400, "header-missing"),
    ({"ack": "false"}, 400, "header-invalid"),
    ({"credit": "0"}, 400, "header-invalid"),
    ({"credit": "1001"}, 400, "header-invalid"),
    ({"credit": "-1"}, 400, "header-invalid"),
    ({"body": "x"}, 400, "body-invalid"),
)


def path_of(name: str) -> str:
    return f"/{name}"


def script(endpoint: Endpoint, name: str, *first: Answer) -> None:
    """Answer with these first and with 200 from then on."""
    answers = list(first)
    endpoint.scripts[path_of(name)] = lambda _: answers.pop(0) if answers else OK


def test_off_by_default(bridge: Bridge, name: str) -> None:
    answer = register(bridge, name, "https://shop.example/")
    assert answer.status_code == 403
    assert answer.json()["code"] == "callback-refused"
    assert "callbacks.targets" in answer.json()["detail"]
    assert listed(bridge, name) is None
    assert register(bridge, name, "").status_code == 204


def test_an_address_that_is_never_dialled_cannot_be_registered(start: Start, endpoint: Endpoint, name: str) -> None:
    bridge = start(**endpoint.settings(OMS_CALLBACKS__TARGETS="http://10.0.0.1,http://169.254.169.254"))
    for url in ("http://10.0.0.1/hook?token=secret", "http://169.254.169.254/latest/meta-data"):
        answer = register(bridge, name, url)
        assert (answer.status_code, answer.json()["code"]) == (403, "callback-refused")
        assert "callbacks.networks does not allow it" in answer.json()["detail"]
        assert "secret" not in answer.text
    assert listed(bridge, name) is None


def test_a_message_arrives_in_the_produce_form_and_signed(calling: Bridge, endpoint: Endpoint, name: str) -> None:
    answer = register(calling, name, endpoint.url(path_of(name) + "?token=1"))
    assert answer.status_code == 201
    shown = {"source": name, "consumerId": "app", "url": endpoint.url(path_of(name)) + "?***", "credit": 64}
    assert answer.json().items() >= {**shown, "kept": "memory", "state": "delivering"}.items()
    body = '{"total": "12 €"}'.encode()
    fields = {"messageid": "order.7", "messagekey": "c12", "priority": 9}
    asked = {"h-destination": name, "p-%4frder%49d": "7", **{f"h-{k}": v for k, v in fields.items()}}
    assert ask(calling, "POST", "/v1/messages", asked, body).status_code == 200
    (posted,) = endpoint.wait_for(path_of(name) + "?token=1", 1)
    assert posted.body == body
    expected = {"destination": name, "messageid": "order.7", "messagekey": "c12", "priority": "9", "deliverycount": "1"}
    assert {k: posted.headers[f"x-oms-h-{k}"] for k in expected} == expected
    assert posted.headers["x-oms-version"] == "1.0.0"
    assert posted.headers["webhook-id"] == "order%2E7"
    assert posted.headers["x-oms-p-%4frder%49d"] == "7"
    assert posted.headers["content-type"] == "application/octet-stream"
    assert Webhook(SECRET).verify(posted.body, dict(posted.headers)) == {"total": "12 €"}
    for tampered, headers in (
        (posted.body + b" ", posted.headers),
        (posted.body, {**posted.headers, "webhook-id": "x"}),
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(tampered, dict(headers))
    wait_until(lambda: (listed(calling, name) or {})["delivered"] == 1)
    assert pull(calling, name).status_code == 204, "it is acknowledged"


def test_a_message_with_large_headers_arrives_in_the_json_form(
    calling: Bridge, endpoint: Endpoint, name: str, subtests: pytest.Subtests
) -> None:
    """An HTTP server reads 100 headers, or 8 or 16 KiB of them: the POST would be refused each time."""
    many = {f"n{number}": "v" for number in range(120)}
    for number, (properties, message_id) in enumerate(
        (({"Large": "x" * 20_000}, "a"), (many, "b"), ({}, "c" * 20_000), ({"small": "v"}, "d"))
    ):
        with subtests.test(message_id[:1]):
            item = {"header": {"destination": f"{name}{number}", "messageId": message_id}, "properties": properties}
            batch = json.dumps([item | {"data": base64.b64encode(gzip.compress(b"body")).decode()}])
            batch = batch.replace(f'"messageId": "{message_id}"', f'"messageId": "{message_id}", "compression": "gzip"')
            sent = {"x-oms-version": "1.0.0", "content-type": "application/json"}
            answer = httpx.post(f"{calling.url}/v1/messages", headers=sent, content=batch, trust_env=False)
            assert answer.status_code == 200, answer.text
            assert [each["status"] for each in answer.json()] == [200]
            register(calling, f"{name}{number}", endpoint.url(path_of(f"{name}{number}")))
            (posted,) = endpoint.wait_for(path_of(f"{name}{number}"), 1)
            content = f"{posted.headers['webhook-id']}.{posted.headers['webhook-timestamp']}.".encode() + posted.body
            digest = hmac.digest(base64.b64decode(SECRET.removeprefix("whsec_")), content, "sha256")
            assert posted.headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
            if message_id == "d":
                assert (posted.body, posted.headers["x-oms-p-small"]) == (b"body", "v")
                assert "x-oms-form" not in posted.headers
                continue
            assert posted.headers["x-oms-form"] == "json"
            assert posted.headers["content-type"] == "application/vnd.oms.message+json"
            message = decode_message(posted.body)
            assert (message.body, message.properties, message.message_id) == (b"body", properties, message_id)
            assert len(posted.headers["webhook-id"]) <= 64
            assert sum(len(n) + len(v) for n, v in posted.headers.items()) < 4096


def test_a_large_event_arrives_in_structured_mode(calling: Bridge, endpoint: Endpoint, name: str) -> None:
    register(calling, name, endpoint.url(path_of(name)), accept="application/cloudevents")
    asked = {"h-destination": name, "p-large": "x" * 5000}
    assert ask(calling, "POST", "/v1/messages", asked, b"body").status_code == 200
    (posted,) = endpoint.wait_for(path_of(name), 1)
    assert posted.headers["content-type"] == "application/cloudevents+json"
    assert json.loads(posted.body)["large"] == "x" * 5000


def test_gzip_is_undone(calling: Bridge, endpoint: Endpoint, name: str) -> None:
    register(calling, name, endpoint.url(path_of(name)))
    produce(calling, name, gzip.compress(b"plain"), compression="gzip")
    (posted,) = endpoint.wait_for(path_of(name), 1)
    assert posted.body == b"plain"
    assert "x-oms-h-compression" not in posted.headers
    assert "content-encoding" not in posted.headers


def test_registering_again_replaces_and_an_empty_url_stops(calling: Bridge, endpoint: Endpoint, name: str) -> None:
    first, second = path_of(name) + "/1", path_of(name) + "/2"
    assert register(calling, name, endpoint.url(first)).status_code == 201
    produce(calling, name, b"1")
    endpoint.wait_for(first, 1)
    assert register(calling, name, endpoint.url(second), credit=3).status_code == 200
    produce(calling, name, b"2")
    endpoint.wait_for(second, 1)
    assert len(endpoint.to(first)) == 1
    entry = listed(calling, name)
    assert entry is not None
    assert (entry["url"], entry["credit"]) == (endpoint.url(second), 3)
    wait_until(settled(calling, name))
    for _ in range(2):
        stopped = register(calling, name, "")
        assert (stopped.status_code, stopped.content) == (204, b"")
    assert listed(calling, name) is None
    produce(calling, name, b"3")
    answer = pull(calling, name, wait=10_000)
    assert (answer.content, answer.headers["x-oms-h-deliverycount"]) == (b"3", "1")
    assert len(endpoint.to(second)) == 1


def test_the_query_asks_as_well(calling: Bridge, endpoint: Endpoint, name: str) -> None:
    query = {"version": "1.0.0", "source": name, "consumerid": "app", "callbackurl": endpoint.url("/q")}
    assert httpx.post(f"{calling.url}/v1/push", params=query, trust_env=False).status_code == 201
    query["callbackurl"] = ""
    assert httpx.post(f"{calling.url}/v1/push", params=query, trust_env=False).status_code == 204


def test_what_is_refused(calling: Bridge, name: str, subtests: pytest.Subtests) -> None:
    given = {"version": "1.0.0", "source": name, "consumerid": "app", "callbackurl": "http://127.0.0.1/", "body": ""}
    for asked, status, code in REFUSED:
        with subtests.test(str(asked)):
            sent = {key: value for key, value in {**given, **asked}.items() if value is not None}
            body = sent.pop("body").encode()
            headers = {f"x-oms-{key}": value for key, value in sent.items()}
            answer = httpx.post(f"{calling.url}/v1/push", headers=headers, content=body, trust_env=False)
            assert (answer.status_code, answer.json()["code"]) == (status, code)
            assert listed(calling, name) is None


def test_a_credit_above_the_setting_is_cut(calling: Bridge, endpoint: Endpoint, name: str) -> None:
    assert register(calling, name, endpoint.url("/"), credit=1000).json()["credit"] == 64
    register(calling, name, "")


def test_a_500_is_delivered_again(calling: Bridge, endpoint: Endpoint, name: str) -> None:
    script(endpoint, name, (500, {}), (302, {"location": "http://127.0.0.1:1/"}))
    register(calling, name, endpoint.url(path_of(name)))
    produce(calling, name, b"{}", messageid="m-1")
    posts = endpoint.wait_for(path_of(name), 3)
    assert [post.attempt for post in posts] == [1, 2, 3]
    assert len({post.headers["webhook-id"] for post in posts}) == 1
    for post in posts:
        Webhook(SECRET).verify(post.body, dict(post.headers))
    wait_until(settled(calling, name))
    entry = listed(calling, name)
    assert entry is not None
    assert (entry["delivered"], entry["failed"], entry["state"]) == (1, 2, "delivering")
    assert [(f["messageId"], f["attempt"], f["status"]) for f in entry["failures"]] == [
        ("m-1", 1, 500),
        ("m-1", 2, 302),
    ]


def test_the_dead_letter_comes_after_max_deliveries(calling: Bridge, endpoint: Endpoint, name: str) -> None:
    endpoint.scripts[path_of(name)] = lambda post: (422, {}) if post.body == b"poison" else OK
    register(calling, name, endpoint.url(path_of(name)))
    produce(calling, name, b"poison")
    produce(calling, name, b"good")
    buried = pull(calling, f"{name}.dlq", wait=30_000)
    assert buried.content == b"poison"
    assert buried.headers["x-oms-p-oms-dead-letter-count"] == "3"
    assert [post.attempt for post in endpoint.to(path_of(name)) if post.body == b"poison"] == [1, 2, 3]
    assert [post.attempt for post in endpoint.to(path_of(name)) if post.body == b"good"] == [1]


def test_a_410_stops(calling: Bridge, endpoint: Endpoint, name: str) -> None:
    script(endpoint, name, (410, {}))
    register(calling, name, endpoint.url(path_of(name)))
    produce(calling, name, b"x")
    wait_until(lambda: (listed(calling, name) or {})["state"] == "gone")
    answer = pull(calling, name, wait=10_000)
    assert (answer.content, answer.headers["x-oms-h-deliverycount"]) == (b"x", "1"), "it went back uncounted"
    assert len(endpoint.to(path_of(name))) == 1
    ask(calling, "POST", "/v1/nack", {"receipt": answer.headers["x-oms-receipt"]})
    assert register(calling, name, endpoint.url(path_of(name))).json()["state"] == "delivering"
    assert endpoint.wait_for(path_of(name), 2)[1].attempt == 2


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_pauses(calling: Bridge, endpoint: Endpoint, name: str, status: int) -> None:
    script(endpoint, name, (status, {"retry-after": "2"}))
    register(calling, name, endpoint.url(path_of(name)), credit=1)
    produce(calling, name, b"1")
    produce(calling, name, b"2")
    wait_until(lambda: (listed(calling, name) or {})["state"] == "paused")
    entry = listed(calling, name)
    assert entry is not None
    assert entry["until"] > 1_700_000_000_000
    posts = endpoint.wait_for(path_of(name), 3)
    assert posts[1].at - posts[0].at >= 1.9
    assert [post.attempt for post in posts] == [1, 1, 1], "a pause is no failed delivery"
    assert entry["failed"] == 0


def test_a_slow_endpoint_times_out(start: Start, endpoint: Endpoint, name: str) -> None:
    bridge = start(**endpoint.settings(OMS_CALLBACKS__TIMEOUT="300"))
    pulled: list[Posted] = []

    def slow_at_first(post: Posted) -> Answer:
        if not pulled:
            pulled.append(post)
            wait_until(lambda: (listed(bridge, name) or {}).get("failed") == 1)
        return OK

    endpoint.scripts[path_of(name)] = slow_at_first
    register(bridge, name, endpoint.url(path_of(name)))
    produce(bridge, name, b"x")
    assert [post.attempt for post in endpoint.wait_for(path_of(name), 2)] == [1, 2]
    entry = listed(bridge, name)
    assert entry is not None
    assert "status" not in entry["failures"][0]
    assert "0.3 s" in entry["failures"][0]["reason"]


def test_a_dead_endpoint_that_comes_back(start: Start, name: str) -> None:
    late = Endpoint()
    try:
        bridge = start(**late.settings())
        register(bridge, name, late.url("/late"))
        for number in range(30):
            produce(bridge, name, b"%d" % number)
        wait_until(lambda: (listed(bridge, name) or {})["state"] in {"open", "probing"})
        metrics = httpx.get(f"{bridge.management}/metrics", trust_env=False).text
        assert "oms_callback_circuits_open 1.0" in metrics
        entry = listed(bridge, name)
        assert entry is not None
        assert entry["failures"]
        late.listen()
        wait_until(lambda: (listed(bridge, name) or {})["delivered"] == 30)
        assert {post.body for post in late.to("/late")} == {b"%d" % number for number in range(30)}
        assert (listed(bridge, name) or {})["state"] == "delivering"
        assert pull(bridge, f"{name}.dlq").status_code == 204
    finally:
        late.close()


def test_each_key_keeps_its_order_with_failures_in_between(calling: Bridge, endpoint: Endpoint, name: str) -> None:
    def every_seventh_fails(post: Posted) -> Answer:
        return (500, {}) if post.attempt == 1 and int(post.body) % 7 == 3 else OK

    endpoint.scripts[path_of(name)] = every_seventh_fails
    for number in range(60):
        produce(calling, name, b"%d" % number, messagekey=f"k{number % 5}")
    register(calling, name, endpoint.url(path_of(name)))
    wait_until(lambda: (listed(calling, name) or {})["delivered"] == 60)
    of_key: dict[str, list[int]] = defaultdict(list)
    for post in endpoint.to(path_of(name)):
        of_key[post.headers["x-oms-h-messagekey"]].append(int(post.body))
    for numbers in of_key.values():
        assert numbers == sorted(numbers)
    assert sum(map(len, of_key.values())) == 60 + len([n for n in range(60) if n % 7 == 3])
