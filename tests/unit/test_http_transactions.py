"""Transactions over HTTP: what a produce with `x-oms-transaction` answers, and what ends a transaction."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from adapters.base import Adapter
from adapters.memory import connect
from adapters.memory.transactions import Transactions
from bridge.callbacks.registry import CallbackRegistry
from bridge.engine.clock import SystemClock
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.http.data_port import DataApp, routes
from bridge.http.management_port import management_app
from bridge.http.origin_policy import OriginPolicy
from bridge.metrics import BridgeMetrics
from tests.unit.api_document import LIMITS, OPERATIONS, schema_of, validator

VERSION = {"x-oms-version": "1.0.0"}


class Client:
    """A client of a bridge in this process."""

    def __init__(self, adapter: Adapter, **options: Any) -> None:  # noqa: ANN401 - of any option
        self.engine = Engine(adapter, SystemClock(), EngineOptions(store_host="here", **options))
        metrics, origins = BridgeMetrics(self.engine), OriginPolicy((), ())
        table = routes(self.engine, CallbackRegistry(self.engine), LIMITS, 16)
        self.data = self._connect(DataApp(table, origins, LIMITS, metrics))
        self.management = self._connect(management_app(self.engine, metrics, {"backend": "memory://"}, origins))

    @staticmethod
    def _connect(app: Any) -> httpx.AsyncClient:  # noqa: ANN401 - an ASGI application
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")

    async def produce(self, mode: str | None, body: bytes = b"x", **fields: str) -> httpx.Response:
        headers = VERSION | {"x-oms-h-destination": "orders"}
        headers |= {f"x-oms-{name.replace('_', '-')}": value for name, value in fields.items()}
        if mode is not None:
            headers["x-oms-transaction"] = mode
        return await self.data.post("/v1/messages", headers=headers, content=body)

    async def end(self, how: str, name: str) -> httpx.Response:
        return await self.data.post(f"/v1/transactions/{name}/{how}", headers=VERSION)

    async def get(self, name: str = "") -> Any:  # noqa: ANN401 - JSON
        answer = await self.data.get(f"/v1/transactions{'/' if name else ''}{name}", headers=VERSION)
        assert answer.status_code == 200, answer.text
        validate(f"/v1/transactions{'/{transactionId}' if name else ''}", "get", answer)
        return answer.json()

    async def pulled(self, destination: str = "orders") -> list[tuple[bytes, str | None]]:
        """Return the bodies and transactions of everything that is visible and was not pulled before."""
        found = []
        await asyncio.sleep(0)  # a group fetches what was stored in the next turn of the loop
        pull = VERSION | {"x-oms-source": destination, "x-oms-consumerid": "g"}
        while (answer := await self.data.get("/v1/messages", headers=pull)).status_code == 200:
            found.append((answer.content, answer.headers.get("x-oms-h-transactionid")))
        return found


def validate(path: str, method: str, answer: httpx.Response) -> None:
    """Check an answer against the OpenAPI document."""
    validator(schema_of(path, method, answer.status_code, answer.headers["content-type"])).validate(answer.json())
    ours = {name for name in answer.headers if name.startswith("x-oms-")}
    assert ours <= set(OPERATIONS[path, method]["responses"][str(answer.status_code)]["headers"])


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client(connect("memory://?partitions=1"), transaction_messages=3, transaction_bytes=600)
    await client.engine.start()
    yield client
    await client.engine.close()


async def test_messages_of_a_transaction_are_visible_after_its_commit(client: Client) -> None:
    first = await client.produce("prepare", b"a", h_messagekey="k", transaction_timeout="5000")
    name = first.headers["x-oms-h-transactionid"]
    assert (first.status_code, first.headers["x-oms-applied"]) == (200, "messageKey=native,transactionId=native")
    assert not {"x-oms-h-storetimestamp", "x-oms-h-partition", "x-oms-offset"} & set(first.headers)
    second = await client.data.post(
        "/v1/destinations/other/messages",
        params={"transaction": name},
        headers={"x-oms-transaction": "prepare"},
        content=b"b",
    )
    validate("/v1/destinations/{destination}/messages", "post", second)
    assert second.json() == {
        "status": 200,
        "messageId": second.headers["x-oms-h-messageid"],
        "transactionId": name,
        "applied": "transactionId=native",
    }
    assert await client.pulled() == await client.pulled("other") == []
    open_one = await client.get(name)
    assert (open_one["state"], open_one["timeoutMills"], open_one["messages"]) == ("open", 5000, 2)
    assert await client.get() == [open_one] == (await client.management.get("/v1/transactions")).json()
    for _ in range(2):
        answer = await client.end("commit", name)
        validate("/v1/transactions/{transactionId}/commit", "post", answer)
        assert (answer.status_code, answer.json()["state"]) == (200, "committed")
    assert await client.pulled() == [(b"a", name)]
    assert await client.pulled("other") == [(b"b", name)]
    assert await client.get() == []


async def test_a_message_may_commit_its_transaction(client: Client) -> None:
    await client.produce("prepare", b"a", h_transactionid="tx-1")
    last = await client.produce("commit", b"b", h_transactionid="tx-1")
    assert (last.headers["x-oms-offset"], last.headers["x-oms-h-partition"]) == ("1", "0")
    assert int(last.headers["x-oms-h-storetimestamp"]) > 0
    assert await client.pulled() == [(b"a", "tx-1"), (b"b", "tx-1")]
    assert (await client.get("tx-1"))["state"] == "committed"


async def test_a_batch_belongs_to_one_transaction(client: Client) -> None:
    def batch(*bodies: str, **fields: str) -> list[dict[str, Any]]:
        header = {"destination": "orders"}
        return [{"header": header, "extensionHeader": fields, "data": body} for body in bodies]

    async def post(mode: str, messages: list[dict[str, Any]], **more: str) -> httpx.Response:
        headers = VERSION | {"x-oms-transaction": mode} | more
        answer = await client.data.post("/v1/messages", headers=headers, json=messages)
        assert answer.status_code in {200, 207}, answer.text
        return answer

    prepared = (await post("prepare", batch("YQ==", "Yg=="))).json()
    [name] = {each["transactionId"] for each in prepared}
    failed = await post("commit", [*batch("Yw=="), {"header": {}}], **{"x-oms-h-transactionid": name})
    assert [each["status"] for each in failed.json()] == [200, 400]
    assert await client.pulled() == [], "a batch that is refused in part commits nothing"
    full = await post("commit", batch("ZA=="), **{"x-oms-h-transactionid": name})
    assert [each["code"] for each in full.json()] == ["body-too-large"]
    committed = (await post("commit", batch("ZQ==", "Zg=="))).json()
    assert [each["offset"] for each in committed] == [0, 1]
    await client.end("commit", name)
    assert [body for body, _ in await client.pulled()] == [b"e", b"f", b"a", b"b", b"c"]
    mixed = await client.data.post(
        "/v1/messages",
        headers=VERSION | {"x-oms-transaction": "prepare"},
        json=[*batch("YQ==", transactionId="one"), *batch("YQ==", transactionId="two")],
    )
    assert (mixed.status_code, mixed.json()["code"]) == (400, "header-invalid")


async def test_a_transaction_ends_once(client: Client) -> None:
    for name, how, other in (("a", "commit", "rollback"), ("b", "rollback", "commit")):
        await client.produce("prepare", h_transactionid=name)
        await client.end(how, name)
        state = (await client.get(name))["state"]
        late = await client.produce("prepare", h_transactionid=name)
        for refused in (await client.end(other, name), late):
            assert (refused.status_code, refused.json()["code"], refused.json()["state"]) == (
                *(409, "transaction-ended"),
                state,
            )
        validate(f"/v1/transactions/{{transactionId}}/{other}", "post", await client.end(other, name))
    assert [name for _, name in await client.pulled()] == ["a"]
    for unknown in (await client.end("commit", "never"), await client.end("rollback", "never")):
        assert (unknown.status_code, unknown.json()["code"]) == (404, "transaction-unknown")


async def test_a_retry_prepares_nothing_twice(client: Client) -> None:
    first = await client.produce("prepare", b"a", h_transactionid="tx", h_messageid="m")
    again = await client.produce("prepare", b"a", h_transactionid="tx", h_messageid="m")
    assert (again.headers["x-oms-duplicate"], "x-oms-duplicate" in first.headers) == ("true", False)
    other = await client.produce("prepare", b"b", h_transactionid="tx", h_messageid="m")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-mismatch")
    await client.produce("prepare", b"a", h_transactionid="dropped", h_messageid="m")
    await client.end("rollback", "dropped")
    await client.end("commit", "tx")
    assert await client.pulled() == [(b"a", "tx")]
    plain = await client.produce(None, b"a", h_messageid="m")
    assert "x-oms-duplicate" not in plain.headers, "a prepared message is not a stored one"


async def test_limits_refuse_before_anything_is_stored(client: Client) -> None:
    large = await client.produce("prepare", b"x" * 500, h_transactionid="large")
    assert large.status_code == 200, "one message always fits"
    refused = await client.produce("prepare", b"x" * 500, h_transactionid="large")
    assert (refused.status_code, refused.json()["code"]) == (413, "body-too-large")
    for _ in range(3):
        await client.produce("prepare", h_transactionid="many")
    refused = await client.produce("prepare", h_transactionid="many")
    assert (refused.status_code, "limits.transaction_messages" in refused.text) == (413, True)
    assert [each["messages"] for each in await client.get()] == [1, 3]


@pytest.mark.parametrize(
    ("mode", "fields", "status", "code"),
    [
        ("end", {}, 400, "header-invalid"),
        ("prepare", {"transaction_timeout": "0"}, 400, "header-invalid"),
        ("prepare", {"transaction_timeout": "3600001"}, 400, "header-invalid"),
        ("prepare", {"transaction_check": "https://shop.example/"}, 403, "callback-refused"),
        ("prepare", {"h_transactionid": "x" * 256}, 400, "header-invalid"),
        ("prepare", {"h_destination": "amq.x"}, 400, "destination-invalid"),
        ("prepare", {"h_partition": "7"}, 400, "partition-unknown"),
    ],
)
async def test_what_is_wrong_is_refused(
    client: Client, mode: str, fields: dict[str, str], status: int, code: str
) -> None:
    answer = await client.produce(mode, b"x", **fields)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert await client.get() == []


async def test_a_backend_without_transactions_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = connect("memory://")
    monkeypatch.delattr(Transactions, "transactions")
    client = Client(adapter)
    await client.engine.start()
    refused = (await client.produce("prepare"), await client.data.get("/v1/transactions", headers=VERSION))
    capabilities = (await client.data.get("/v1/capabilities")).json()
    await client.engine.close()
    assert [(each.status_code, each.json()["code"]) for each in refused] == [(422, "field-unsupported")] * 2
    assert capabilities["transactions"] == "unsupported"
