"""Transactions on real bridges: ids of any text, and the check-back of one that its producer left open."""

import json
import time
from urllib.parse import quote

from standardwebhooks import Webhook

from tests.http.callback_endpoint import SECRET, Answer, Endpoint, Posted, ask, pull, wait_until
from tests.http.conftest import MOSTLY_HYPERCORN, Start
from tests.launch import Bridge

pytestmark = MOSTLY_HYPERCORN

JSON = {"content-type": "application/json"}


def prepare(bridge: Bridge, destination: str, body: bytes, **headers: str) -> str:
    named = {"h-destination": destination, "transaction": "prepare"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    answer = ask(bridge, "POST", "/v1/messages", named, body)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-oms-h-transactionid"]


def test_an_id_may_be_any_text(bridge: Bridge, name: str) -> None:
    identity = f"{name}/ä %2F?"
    extended = f"UTF-8''{quote(identity, safe='')}"
    headers = {"h-destination": name, "transaction": "prepare", "h-transactionid*": extended}
    assert ask(bridge, "POST", "/v1/messages", headers, b"x").status_code == 200
    path = f"/v1/transactions/{quote(identity, safe='')}"
    assert ask(bridge, "GET", path, {}).json()["transactionId"] == identity
    assert ask(bridge, "POST", f"{path}/commit", {}).json()["state"] == "committed"
    assert pull(bridge, name).content == b"x"


def test_the_producer_is_asked_and_commits(start: Start, endpoint: Endpoint, name: str) -> None:
    def answer(_: Posted) -> Answer:
        return 200, JSON, b'{"decision": "commit"}'

    path = f"/{name}"
    endpoint.scripts[path] = answer
    bridge = start(**endpoint.settings())
    prepare(bridge, name, b"x", h_transactionid=name, transaction_timeout="1", transaction_check=endpoint.url(path))
    [posted] = endpoint.wait_for(path, 1)
    Webhook(SECRET).verify(posted.body, {key.lower(): value for key, value in posted.headers.items()})
    question = json.loads(posted.body)
    assert (question["transactionId"], question["messages"]) == (name, 1)
    assert abs(question["began"] - time.time() * 1000) < 60_000
    assert pull(bridge, name, wait=20_000).content == b"x"
    refused = ask(bridge, "POST", f"/v1/transactions/{name}/rollback", {})
    assert (refused.status_code, refused.json()["state"]) == (409, "committed")
    secret = endpoint.url(f"{path}?token=secret")
    prepare(bridge, name, b"y", h_transactionid=f"{name}-2", transaction_check=secret)
    assert ask(bridge, "GET", f"/v1/transactions/{name}-2", {}).json()["check"] == endpoint.url(f"{path}?***")
    assert ask(bridge, "POST", f"/v1/transactions/{name}-2/rollback", {}).status_code == 200
    elsewhere = {"h-destination": name, "transaction": "prepare", "transaction-check": "https://elsewhere.example/"}
    assert ask(bridge, "POST", "/v1/messages", elsewhere).json()["code"] == "callback-refused"


def test_without_a_check_it_is_rolled_back(bridge: Bridge, name: str) -> None:
    prepare(bridge, name, b"x", h_transactionid=name, transaction_timeout="1")
    path = f"/v1/transactions/{name}"
    wait_until(lambda: ask(bridge, "GET", path, {}).json()["state"] == "rolled-back")
    assert ask(bridge, "POST", f"{path}/commit", {}).json()["state"] == "rolled-back"
    assert pull(bridge, name).status_code == 204
