"""Identities on running bridges: forged tokens, stolen receipts, owners, the audit log, changed files."""

import hmac
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.callback_endpoint import Endpoint, wait_until
from tests.http.gateway import RULES, Gateway
from tests.launch import Bridge

HOOK_SECRET = "of-the-hook"  # noqa: S105 - of these tests

OpenGateway = Callable[..., Gateway]


@pytest.fixture
def gateways(tmp_path: Path, server: str) -> Iterator[OpenGateway]:
    opened: list[Gateway] = []

    def start(settings: dict[str, str] | None = None, **more: Any) -> Gateway:  # noqa: ANN401 - of `Gateway`
        opened.append(Gateway(tmp_path / f"gateway{len(opened)}", server, settings, **more))
        return opened[-1]

    yield start
    for each in opened:
        each.__exit__(None, None, None)


@pytest.fixture
def gateway(gateways: OpenGateway) -> Gateway:
    return gateways()


def take(client: httpx.Client, group: str = "billing", **more: str) -> httpx.Response:
    query = {"source": "orders", "consumerid": group, "ack": "true", "waitmills": "20000", **more}
    return client.get("/v1/messages", params=query)


def put(client: httpx.Client, body: bytes = b"x", **headers: str) -> httpx.Response:
    answer = client.post("/v1/messages", headers={"x-oms-h-destination": "orders", **headers}, content=body)
    assert answer.status_code == 200, answer.text
    return answer


def test_forged_tokens_are_401_with_the_reason(gateway: Gateway, subtests: pytest.Subtests) -> None:
    with httpx.Client(base_url=gateway.bridge.url, timeout=60) as client:
        for what, token in gateway.issuer.forged().items():
            with subtests.test(what):
                answer = client.get("/v1/capabilities", headers={"authorization": f"Bearer {token}"})
                assert answer.status_code == 401
                assert answer.json()["code"] == "unauthenticated"
                assert answer.headers["www-authenticate"].startswith(
                    'Bearer realm="openmessaging-bridge", error="invalid'
                )
        expired = client.get("/v1/capabilities", headers=gateway.headers("login:a", exp=1))
        assert "the token has expired" in expired.json()["detail"]
        assert "the token has expired" in expired.headers["www-authenticate"]
        for kid in gateway.issuer.keys:
            headers = {"authorization": f"bearer {gateway.issuer.token(kid)}"}
            assert client.get("/v1/capabilities", headers=headers).status_code == 200
    with gateway.management("auditor") as client:
        metrics = client.get("/metrics").text
    for reason in ("token-expired", "signature-wrong", "audience-wrong", "key-unknown", "algorithm-not-allowed"):
        assert f'oms_denials_total{{reason="{reason}"}}' in metrics
    assert "internal error" not in gateway.bridge.log


def test_a_large_body_does_not_hide_the_reason(gateway: Gateway, subtests: pytest.Subtests) -> None:
    """Also over HTTP/2: a client that has sent its body learns that it needs a new token, and sends it again."""
    for http2 in (False, True):
        with subtests.test(http2=http2), httpx.Client(http1=not http2, http2=http2, timeout=60) as client:
            for _ in range(3):
                headers = {**gateway.headers("login:shop", exp=1), "x-oms-h-destination": "orders"}
                answer = client.post(f"{gateway.bridge.url}/v1/messages", headers=headers, content=b"x" * 3_000_000)
                assert answer.status_code == 401
                assert "the token has expired" in answer.json()["detail"]
            headers |= gateway.headers("shop")
            answer = client.post(f"{gateway.bridge.url}/v1/messages", headers=headers, content=b"x" * 3_000_000)
            assert answer.status_code == 200


def test_random_bytes_as_tokens_are_401(gateway: Gateway) -> None:
    source, token = random.Random(45), gateway.issuer.token()  # noqa: S311 - the same bytes in each run
    with httpx.Client(base_url=gateway.bridge.url, timeout=60) as client:
        for _ in range(300):
            if source.random() < 0.5:
                given = bytes(
                    source.choice([*range(33, 127), *range(161, 255)]) for _ in range(source.randrange(1, 200))
                )
            else:
                changed = bytearray(token.encode())
                changed[source.randrange(len(changed) - 1)] = source.randrange(48, 58)
                given = bytes(changed)
            if given == token.encode():
                continue
            for scheme in (b"Bearer ", b"", b"Basic "):
                answer = client.get("/v1/capabilities", headers=[(b"authorization", scheme + given)])
                assert answer.status_code == 401, given
        twice = [("authorization", f"Bearer {token}")] * 2
        assert client.get("/v1/capabilities", headers=twice).status_code == 401
        for path in ("/v1/capabilities?access_token=", "/v1/messages?source=o&consumerid=b&access_token="):
            assert client.get(path + token).status_code == 401
    assert "internal error" not in gateway.bridge.log
    assert token not in gateway.bridge.log


def test_a_stolen_receipt_settles_nothing(gateway: Gateway) -> None:
    gateway.write("rules", {"rules": [*RULES, {**RULES[2], "principals": ["auditor"]}]})
    wait_until(lambda: "a changed file is in use" in gateway.bridge.log)
    with gateway.client("shop") as shop, gateway.client("billing") as owner, gateway.client("auditor") as thief:
        put(shop)
        receipt = take(owner).headers["x-oms-receipt"]
        for path in ("/v1/ack", "/v1/nack", "/v1/extend"):
            assert thief.post(path, headers={"x-oms-receipt": receipt}).json()["code"] == "receipt-invalid"
            in_body = thief.post(path, json={"receipts": [receipt]})
            assert in_body.json()["code"] == "receipt-invalid"
            named = {"x-oms-receipt": receipt, "x-oms-source": "orders", "x-oms-consumerid": "billing"}
            assert thief.post(path, headers=named).json()["code"] == "receipt-invalid"
        for path in ("/v1/messages", "/v1/push"):
            query = {"source": "orders", "consumerid": "billing", "receipt": receipt, "waitmills": "0"}
            assert thief.get(path, params=query).json()["code"] == "receipt-invalid"
        unbound = receipt.rpartition("-")[0]
        for forged in (unbound, f"{unbound}-{'0' * 16}", f"{receipt}-{'0' * 16}"):
            assert owner.post("/v1/ack", headers={"x-oms-receipt": forged}).json()["code"] == "receipt-invalid"
        assert owner.post("/v1/extend", headers={"x-oms-receipt": receipt}).status_code == 204
        assert owner.post("/v1/ack", headers={"x-oms-receipt": receipt}).status_code == 204
        put(shop, b"streamed")
        query = {"source": "orders", "consumerid": "billing", "ack": "true", "maxmessages": "1"}
        with owner.stream("GET", "/v1/push", params=query, headers={"accept": "application/x-ndjson"}) as stream:
            lines = stream.iter_lines()
            receipt = json.loads(next(filter(None, lines)))["receipt"]
            assert thief.post("/v1/ack", headers={"x-oms-receipt": receipt}).json()["code"] == "receipt-invalid"
            assert owner.post("/v1/ack", json={"receipts": [receipt]}).status_code == 204


def test_a_repeated_pull_is_only_for_the_same_principal(gateway: Gateway) -> None:
    gateway.write("rules", {"rules": [*RULES, {**RULES[2], "principals": ["auditor"]}]})
    wait_until(lambda: "a changed file is in use" in gateway.bridge.log)
    with gateway.client("shop") as shop, gateway.client("billing") as owner, gateway.client("auditor") as other:
        put(shop)
        first = take(owner, requestid="one")
        assert take(owner, requestid="one").headers["x-oms-receipt"] == first.headers["x-oms-receipt"]
        assert take(other, requestid="one", waitmills="0").status_code == 204


def test_transactions_are_those_of_their_principal(gateways: OpenGateway, tmp_path: Path) -> None:
    gateway = gateways(backend=f"memory://?journal={tmp_path / 'journal'}")
    with gateway.client("shop") as shop, gateway.client("ops") as ops:
        for client in (shop, ops):
            prepare = {"x-oms-transaction": "prepare", "x-oms-h-transactionid": "order-7"}
            assert put(client, b"x", **prepare).headers["x-oms-h-transactionid"] == "order-7"
            assert [each["transactionId"] for each in client.get("/v1/transactions").json()] == ["order-7"]
        assert shop.post("/v1/transactions/order-7/commit").json()["transactionId"] == "order-7"
        assert ops.get("/v1/transactions/order-7").json()["state"] == "open"
        for stolen in ("ops%1Forder-7", "ops%1forder-7", "other"):
            for path in ("", "/commit", "/rollback"):
                method = "POST" if path else "GET"
                answer = shop.request(method, f"/v1/transactions/{stolen}{path}")
                assert answer.status_code == 404, stolen
    with gateway.client("billing") as client:
        assert client.get("/v1/transactions").status_code == 403
        assert client.post("/v1/transactions/order-7/commit").status_code == 403
    assert gateway.bridge.terminate() == 0
    again = gateways(backend=f"memory://?journal={tmp_path / 'journal'}")
    with again.client("ops") as ops, again.client("shop") as shop, again.client("billing") as billing:
        assert shop.get("/v1/transactions/order-7").json()["state"] == "committed"
        ended = shop.post("/v1/transactions/order-7/rollback")
        assert "The transaction 'order-7' was committed" in ended.json()["detail"]
        assert ops.post("/v1/transactions/order-7/commit").json()["state"] == "committed"
        found = [take(billing).headers["x-oms-h-transactionid"] for _ in range(2)]
        assert found == ["order-7", "order-7"]


def test_the_producer_is_asked_about_the_id_that_it_knows(gateways: OpenGateway, endpoint: Endpoint) -> None:
    gateway = gateways(endpoint.settings())
    endpoint.scripts["/check"] = lambda _: (200, {"content-type": "application/json"}, b'{"decision": "commit"}')
    with gateway.client("shop") as shop, gateway.client("billing") as billing:
        prepare = {
            "x-oms-transaction": "prepare",
            "x-oms-h-transactionid": "order-8",
            "x-oms-transaction-timeout": "100",
        }
        put(shop, b"checked", **prepare, **{"x-oms-transaction-check": endpoint.url("/check")})
        assert json.loads(endpoint.wait_for("/check", 1)[0].body)["transactionId"] == "order-8"
        assert take(billing).headers["x-oms-h-transactionid"] == "order-8"


def test_callbacks_are_those_of_their_principal(gateways: OpenGateway, endpoint: Endpoint, tmp_path: Path) -> None:
    backend = f"memory://?journal={tmp_path / 'journal'}"
    gateway = gateways(endpoint.settings(), backend=backend)
    gateway.write("rules", {"rules": [*RULES, {**RULES[2], "principals": ["shop"]}]})
    wait_until(lambda: "a changed file is in use" in gateway.bridge.log)
    path = f"/{tmp_path.name}"
    query = {"source": "orders", "consumerid": "billing", "callbackurl": endpoint.url(path)}
    with gateway.client("billing") as owner, gateway.client("shop") as other, gateway.client("ops") as ops:
        assert owner.post("/v1/push", params=query).status_code == 201
        assert owner.post("/v1/push", params=query).status_code == 200
        for url in (endpoint.url("/stolen"), ""):
            answer = other.post("/v1/push", params={**query, "callbackurl": url})
            assert (answer.status_code, answer.json()["code"]) == (403, "not-permitted")
        assert other.get("/v1/callbacks").json() == []
        assert len(owner.get("/v1/callbacks").json()) == len(ops.get("/v1/callbacks").json()) == 1
        put(other, b"posted")
        endpoint.wait_for(path, 1)
    assert "callback registered" in gateway.bridge.log
    assert gateway.bridge.terminate() == 0
    again = gateways(endpoint.settings(), backend=backend)
    with again.client("billing") as owner, again.client("shop") as shop, again.client("ops") as ops:
        wait_until(lambda: owner.get("/v1/callbacks").json())
        assert shop.get("/v1/callbacks").json() == []
        put(shop, b"again")
        endpoint.wait_for(path, 2)
        again.write_tokens("shop", "ops", "auditor")
        wait_until(lambda: [each["state"] for each in ops.get("/v1/callbacks").json()] == ["refused"])
        assert "not known any more" in ops.get("/v1/callbacks").json()[0]["why"]
        put(shop, b"kept")
        again.write_tokens("shop", "ops", "billing")
        endpoint.wait_for(path, 3)
        assert ops.post("/v1/push", params={**query, "callbackurl": ""}).status_code == 204


def test_a_callback_ends_with_its_token_and_goes_on_with_another(gateways: OpenGateway, endpoint: Endpoint) -> None:
    gateway = gateways(endpoint.settings())
    rule = {**RULES[2], "principals": ["login:billing"]}
    gateway.write("rules", {"rules": [*RULES, rule]})
    wait_until(lambda: "a changed file is in use" in gateway.bridge.log)
    query = {"source": "orders", "consumerid": "billing", "callbackurl": endpoint.url("/expires")}
    with gateway.client("login:billing", exp=1 + _now()) as short, gateway.client("login:billing") as long:
        assert short.post("/v1/push", params=query).status_code == 201
        wait_until(lambda: [each["state"] for each in long.get("/v1/callbacks").json()] == ["refused"])
        assert "the token has expired" in long.get("/v1/callbacks").json()[0]["why"]
        assert long.post("/v1/push", params=query).json()["state"] == "delivering"


def test_a_webhook_has_its_signature_and_nothing_else(gateways: OpenGateway, tmp_path: Path) -> None:
    (tmp_path / "hook").write_text(HOOK_SECRET)
    verify = {"scheme": "github", "secret_file": str(tmp_path / "hook")}
    gateway = gateways(destinations={"hooks": {"verify": verify}})
    body = b'{"hook": 1}'
    signature = "sha256=" + hmac.digest(HOOK_SECRET.encode(), body, "sha256").hex()
    with gateway.client(None) as client, gateway.client("shop") as shop, gateway.client("ops") as ops:
        path = "/v1/destinations/hooks/messages"
        signed = {"x-hub-signature-256": signature}
        assert client.post(path, headers=signed, content=body).status_code == 200
        assert client.post(path, content=body).json()["code"] == "signature-invalid"
        assert shop.post(path, headers=signed, content=body).status_code == 200  # whatever token it has
        prepare = {**signed, "x-oms-transaction": "prepare"}
        assert client.post(path, headers=prepare, content=body).status_code == 403
        elsewhere = client.post("/v1/destinations/orders/messages", headers=signed, content=body)
        assert elsewhere.json()["code"] == "unauthenticated"
        unsigned = {"x-oms-h-destination": "hooks"}
        assert client.post("/v1/messages", headers=unsigned, content=body).json()["code"] == "unauthenticated"
        assert shop.post("/v1/messages", headers=unsigned, content=body).json()["code"] == "not-permitted"
        assert (
            shop.post("/v1/messages", json=[{"header": {"destination": "hooks"}}]).json()[0]["code"] == "not-permitted"
        )
        assert ops.post("/v1/messages", headers=unsigned, content=body).json()["code"] == "signature-invalid"


def test_the_producer_can_be_a_property(gateways: OpenGateway) -> None:
    gateway = gateways({"OMS_AUTH__PRODUCER_PROPERTY": "producer"})
    with gateway.client("shop") as shop, gateway.client("billing") as billing:
        put(shop, b"x", **{"x-oms-p-producer": "ops", "x-oms-p-other": "kept"})
        taken = take(billing)
        assert (taken.headers["x-oms-p-producer"], taken.headers["x-oms-p-other"]) == ("shop", "kept")


def test_the_audit_log_is_bounded_and_has_no_secret(gateways: OpenGateway) -> None:
    gateway = gateways({"OMS_LOG__LEVEL": "error"})
    with gateway.client("shop") as shop, gateway.client("ops") as ops, gateway.management("ops") as management:
        for _ in range(200):
            assert (
                shop.post("/v1/messages", headers={"x-oms-h-destination": "salaries"}, content=b"secret").status_code
                == 403
            )
        assert put(ops, b"secret").status_code == 200
        assert management.delete("/v1/destinations/orders").status_code == 204
        assert management.delete("/v1/destinations/orders", headers=gateway.headers("shop")).status_code == 403
    lines = [json.loads(line) for line in gateway.bridge.log.splitlines()]
    audit = [line for line in lines if line["logger"] == "bridge.audit"]
    denied = [line for line in audit if line["message"] == "denied" and line["what"] == "produce on salaries"]
    assert 1 <= len(denied) < 100
    assert (denied[0]["principal"], denied[0]["client"], denied[0]["reason"]) == ("shop", "127.0.0.1", "not-permitted")
    assert [line["principal"] for line in audit if line["message"] == "first use"] == ["shop", "ops"]
    deleted = [line for line in audit if line["message"] == "delete"]
    assert [(line["principal"], line["what"]) for line in deleted] == [("ops", "orders")]
    assert "secret" not in gateway.bridge.log
    assert "-token" not in gateway.bridge.log
    with gateway.management("auditor") as management:
        assert 'oms_denials_total{reason="not-permitted"} 201.0' in management.get("/metrics").text


def test_a_bridge_without_identities_warns_beyond_loopback(tmp_path: Path, server: str) -> None:
    for host, warns in (("0.0.0.0", True), ("127.0.0.1", False)):
        with Bridge(tmp_path / host, server=server, settings={"OMS_LISTEN": f"{host}:0"}) as bridge:
            assert ("everyone who can reach this port" in bridge.log) == warns
    settings: dict[str, Any] = {"OMS_LISTEN": "0.0.0.0:0"}
    with Gateway(tmp_path / "gateway", server, settings) as gateway:
        assert "everyone who can reach this port" not in gateway.bridge.log


def test_a_proxy_can_have_another_name(gateways: OpenGateway) -> None:
    gateway = gateways({"OMS_AUTH__RESOURCE": "https://oms.example"})
    with gateway.client(None) as client:
        assert client.get("/.well-known/oauth-protected-resource").json()["resource"] == "https://oms.example"
        assert 'resource_metadata="https://oms.example/' in client.get("/v1/capabilities").headers["www-authenticate"]


def test_without_identities_nothing_asks_for_tokens(tmp_path: Path, server: str) -> None:
    with Bridge(tmp_path, server=server) as bridge, httpx.Client(base_url=bridge.url, timeout=60) as client:
        answer = client.get("/v1/capabilities", headers={"authorization": "Bearer nonsense"})
        assert answer.status_code == 200
        assert client.get("/.well-known/oauth-protected-resource").status_code == 404


def _now() -> int:
    return int(time.time())
