"""Principals x operations x destinations x ways: what a running bridge answers is what its rules say."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx
import pytest

from tests.http.gateway import Gateway

Way = Callable[[httpx.Client, str, str], int]
"""Uses a destination, and perhaps a group, in one way. Returns the status that says whether it was allowed."""

ENDPOINT: Final = "http://127.0.0.1:9"
"""Nobody listens there."""
DESTINATIONS: Final = ("orders", "payments", "orders.dlq", "never-created")
SALES: Final = "login:eve"
PRINCIPALS: Final = (None, "shop", "billing", "ops", "auditor", "denied", SALES, "login:shop")

ALLOWED: Final = {
    ("shop", "produce"): {"orders"},
    ("shop", "transact"): {"orders"},
    (SALES, "produce"): {"orders", "payments"},
    ("billing", "consume"): {"orders", "orders.dlq"},
    ("billing", "callback"): {"orders", "orders.dlq"},
    ("auditor", "inspect"): {*DESTINATIONS},
    **{
        ("ops", operation): {*DESTINATIONS}
        for operation in ("produce", "transact", "consume", "callback", "inspect", "admin")
    },
    **{
        ("denied", operation): {"payments", "never-created"}
        for operation in ("produce", "transact", "consume", "callback", "inspect", "admin")
    },
}
"""What `RULES` allow, written down by hand."""


@pytest.fixture(scope="module", params=["hypercorn", "granian"])
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {
        "OMS_CALLBACKS__TARGETS": ENDPOINT,
        "OMS_CALLBACKS__NETWORKS": "127.0.0.1/32",
        "OMS_CALLBACKS__SECRETS": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5",
    }
    with Gateway(tmp_path_factory.mktemp("gateway"), request.param, settings) as gateway:
        yield gateway


def _header(client: httpx.Client, destination: str, _: str) -> int:
    return client.post("/v1/messages", headers={"x-oms-h-destination": destination}, content=b"x").status_code


def _by_url(client: httpx.Client, destination: str, _: str) -> int:
    return client.post(f"/v1/destinations/{destination}/messages", content=b"x").status_code


def _put(client: httpx.Client, destination: str, _: str) -> int:
    return client.put(f"/v1/destinations/{destination}/messages/id-{id(client)}", content=b"x").status_code


def _json_batch(client: httpx.Client, destination: str, _: str) -> int:
    """The second message: the first one is for a destination that nobody may use."""
    batch = [{"header": {"destination": name}} for name in ("", destination)]
    return _second(client.post("/v1/messages", json=batch))


def _multipart(client: httpx.Client, destination: str, _: str) -> int:
    parts = b"".join(
        b"--b\r\nx-oms-h-destination: %s\r\n\r\nx\r\n" % name.encode() for name in ("bad name", destination)
    )
    headers = {"content-type": "multipart/mixed; boundary=b"}
    return _second(client.post("/v1/messages", headers=headers, content=parts + b"--b--\r\n"))


def _stream(client: httpx.Client, destination: str, _: str) -> int:
    lines = "".join(json.dumps({"header": {"destination": name}}) + "\n" for name in ("bad name", destination))
    answer = client.post("/v1/stream", headers={"content-type": "application/x-ndjson"}, content=lines.encode())
    if answer.status_code != 200:
        return answer.status_code
    return int(json.loads(answer.text.splitlines()[1])["status"])


EVENT: Final = {"specversion": "1.0", "id": "1", "source": "/t", "type": "t"}


def _binary_event(client: httpx.Client, destination: str, _: str) -> int:
    headers = {f"ce-{name}": value for name, value in EVENT.items()} | {"x-oms-h-destination": destination}
    return client.post("/v1/messages", headers=headers, content=b"x").status_code


def _structured_event(client: httpx.Client, destination: str, _: str) -> int:
    headers = {"content-type": "application/cloudevents+json", "x-oms-h-destination": destination}
    return client.post("/v1/messages", headers=headers, content=json.dumps(EVENT)).status_code


def _batched_events(client: httpx.Client, destination: str, _: str) -> int:
    headers = {"content-type": "application/cloudevents-batch+json"}
    path = f"/v1/destinations/{destination}/messages"
    return _second(client.post(path, headers=headers, content=json.dumps([{}, EVENT])))


def _prepare(client: httpx.Client, destination: str, _: str) -> int:
    headers = {"x-oms-h-destination": destination, "x-oms-transaction": "prepare"}
    answer = client.post("/v1/messages", headers=headers, content=b"x")
    if answer.status_code == 200:
        transaction = answer.headers["x-oms-h-transactionid"]
        assert client.post(f"/v1/transactions/{transaction}/rollback").status_code == 200
    return answer.status_code


def _prepare_batch(client: httpx.Client, destination: str, _: str) -> int:
    batch = [{"header": {"destination": name}} for name in ("", destination)]
    return _second(client.post("/v1/messages", headers={"x-oms-transaction": "commit"}, json=batch))


def _pull_header(client: httpx.Client, destination: str, group: str) -> int:
    return client.get("/v1/messages", headers={"x-oms-source": destination, "x-oms-consumerid": group}).status_code


def _pull_query(client: httpx.Client, destination: str, group: str) -> int:
    query = {"source": destination, "consumerid": group, "ack": "true", "requestid": "r"}
    return client.get("/v1/messages", params=query).status_code


def _push(accept: str) -> Way:
    def way(client: httpx.Client, destination: str, group: str) -> int:
        query = {"source": destination, "consumerid": group, "waitmills": "0"}
        return client.get("/v1/push", params=query, headers={"accept": accept}).status_code

    return way


def _register(client: httpx.Client, destination: str, group: str) -> int:
    query = {"source": destination, "consumerid": group, "callbackurl": f"{ENDPOINT}/x"}
    answer = client.post("/v1/push", params=query)
    if answer.status_code in {200, 201}:
        _stop(client, destination, group)
    return answer.status_code


def _stop(client: httpx.Client, destination: str, group: str) -> int:
    query = {"source": destination, "consumerid": group, "callbackurl": ""}
    return client.post("/v1/push", params=query).status_code


def _log(client: httpx.Client, destination: str, _: str) -> int:
    return client.get("/v1/log", headers={"x-oms-log": f"0/{destination}/0"}).status_code


def _second(answer: httpx.Response) -> int:
    return int(answer.json()[1]["status"]) if answer.status_code == 207 else answer.status_code


def _management(method: str, path: str) -> Way:
    def way(client: httpx.Client, destination: str, group: str) -> int:
        return client.request(method, path.format(destination=destination, group=group)).status_code

    return way


WAYS: Final[dict[str, tuple[Way, ...]]] = {
    "produce": (
        *(_header, _by_url, _put, _json_batch, _multipart, _stream),
        *(_binary_event, _structured_event, _batched_events),
    ),
    "transact": (_prepare, _prepare_batch),
    "consume": (
        *(_pull_header, _pull_query),
        *(_push("multipart/mixed"), _push("application/x-ndjson"), _push("text/event-stream")),
    ),
    "callback": (_register, _stop),
    "inspect": (_log,),
}
ADMIN: Final = (
    _management("POST", "/v1/destinations/{destination}/groups/{group}/purge"),
    _management("POST", "/v1/destinations/{destination}/purge"),
)


def expected(principal: str | None, operation: str, destination: str) -> str:
    if principal is None:
        return "401"
    needed = ("produce", "transact") if operation == "transact" else (operation,)
    is_allowed = all(destination in ALLOWED.get((principal, each), ()) for each in needed)
    return "allowed" if is_allowed else "403"


def seen(status: int) -> str:
    return str(status) if status in {401, 403} else "allowed"


@pytest.mark.parametrize("operation", WAYS)
def test_each_way_is_as_the_rules_say(gateway: Gateway, operation: str, subtests: pytest.Subtests) -> None:
    for principal in PRINCIPALS:
        claims: dict[str, Any] = {"groups": ["sales"]} if principal == SALES else {}
        with gateway.client(principal, **claims) as client:
            for destination in DESTINATIONS:
                if operation in {"produce", "transact"} and destination.endswith(".dlq"):
                    continue  # a 400 for everyone: only the bridge produces there
                for place, way in enumerate(WAYS[operation]):
                    with subtests.test(principal=principal, destination=destination, way=way.__name__, place=place):
                        status = way(client, destination, "billing")
                        assert seen(status) == expected(principal, operation, destination), status
                        assert status < 500


def test_administration_is_as_the_rules_say(gateway: Gateway, subtests: pytest.Subtests) -> None:
    for principal in PRINCIPALS:
        with gateway.management(principal) as client:
            for destination in ("orders", "payments"):
                for place, way in enumerate(ADMIN):
                    with subtests.test(principal=principal, destination=destination, place=place):
                        assert seen(way(client, destination, "b")) == expected(principal, "admin", destination)


def test_another_group_is_another_resource(gateway: Gateway) -> None:
    with gateway.client("billing") as client:
        for group, status in (("billing", 204), ("b-2", 204), ("audit", 403), ("b", 403)):
            query = {"source": "orders", "consumerid": group, "ack": "true"}
            answer = client.get("/v1/messages", params=query)
            assert (answer.status_code == 403) == (status == 403), group
            if status == 403:
                assert answer.json()["code"] == "not-permitted"
                assert f"consume on orders, group {group}" in answer.json()["detail"]


def test_a_refusal_does_not_say_what_exists(gateway: Gateway) -> None:
    with gateway.client("ops") as client:
        assert _header(client, "secret", "") == 200
    with gateway.client("shop") as client:
        for way in (_header, _json_batch):
            assert [way(client, name, "") for name in ("secret", "absent")] == [403, 403]
        said = [
            client.post("/v1/messages", headers={"x-oms-h-destination": name, "x-oms-h-partition": "999"}).json()[
                "detail"
            ]
            for name in ("secret", "absent")
        ]
        assert said[0].replace("secret", "absent") == said[1]
    with gateway.client("billing") as client:
        assert client.get("/v1/logs").json() == {"logs": {}}
        log = {"x-oms-log": "0/secret/0"}
        assert client.get("/v1/log", headers=log).status_code == 403
    with gateway.client("auditor") as client:
        assert any("/secret/" in name for name in client.get("/v1/logs").json()["logs"])


def test_what_is_no_name_is_refused_and_not_repeated(gateway: Gateway) -> None:
    with gateway.client("shop") as client:
        for name in ("x" * 20_000, "a/b", ".."):
            answer = client.post("/v1/messages", headers={"x-oms-h-destination": name}, content=b"x")
            assert answer.status_code == 403
            assert len(answer.content) < 1000


def test_documents_and_probes_need_no_token_and_the_rest_does(gateway: Gateway) -> None:
    with gateway.client(None) as client, gateway.client("login:nobody") as nobody:
        for path in ("/docs", "/openapi.json", "/asyncapi.json", "/.well-known/oauth-protected-resource"):
            assert client.get(path).status_code == 200, path
        for path in ("/v1/capabilities", "/v1/callbacks", "/v1/transactions", "/v1/logs"):
            assert client.get(path).status_code == 401, path
        assert nobody.get("/v1/capabilities").status_code == 200
        metadata = client.get("/.well-known/oauth-protected-resource").json()
        assert metadata["resource"] == gateway.bridge.url
        assert metadata["authorization_servers"] == [gateway.issuer.issuer]
        answer = client.get("/v1/capabilities")
        assert answer.headers["www-authenticate"].startswith("Bearer ")
        assert answer.headers["www-authenticate"].endswith(
            f'resource_metadata="{gateway.bridge.url}/.well-known/oauth-protected-resource"'
        )
    for path, statuses in (
        ("/livez", [200, 200, 200]),
        ("/readyz", [200, 200, 200]),
        ("/metrics", [401, 403, 200]),
        ("/status", [401, 403, 200]),
        ("/v1/transactions", [401, 403, 200]),
    ):
        found = []
        for principal in (None, "shop", "auditor"):
            with gateway.management(principal) as client:
                found.append(client.get(path).status_code)
        assert found == statuses, path


def test_a_preflight_needs_no_token(gateway: Gateway) -> None:
    with gateway.client(None) as client:
        answer = client.options("/v1/messages", headers={"origin": gateway.bridge.url})
        assert answer.status_code == 204
        assert "authorization" in answer.headers["access-control-allow-headers"]  # `*` does not include it
