"""`Client.transaction` and `oms-bridge transaction`: which requests they send, and what they raise."""

import json
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import unquote

import httpx
import pytest
from click.testing import CliRunner

import bridge.client
from bridge.cli.program import main
from bridge.client import Client
from bridge.errors import (
    BackendUnavailable,
    BridgeError,
    DestinationInvalid,
    OutcomeUnknown,
    TransactionEnded,
    encode_problem,
)
from bridge.message import Message
from bridge.wire.headers import parse
from tests.mock_transport import MockTransport

LISTED = {"transactionId": "tx/1", "state": "open", "messages": 2, "bytes": 9, "began": 5, "timeoutMills": 60000}


class FakeBridge:
    """Notes every request; the next ones fail with `errors`."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.prepared: list[tuple[Message, dict[str, str]]] = []
        self.errors: list[BridgeError] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = unquote(request.url.raw_path.decode())
        self.requests.append(f"{request.method} {path}")
        headers = parse(request.headers.raw)
        headers.require_version()
        if self.errors:
            pairs, body = encode_problem(error := self.errors.pop(0))
            return httpx.Response(error.status, headers=pairs, content=body)
        if path == "/v1/messages":
            self.prepared.append((headers.message(request.content), headers.parameters))
            return httpx.Response(200, headers={"x-oms-h-messageid": "m1"})
        return httpx.Response(200, json=[LISTED] if path == "/v1/transactions" else LISTED | {"state": "committed"})


@pytest.fixture
def fake() -> FakeBridge:
    return FakeBridge()


def client(fake: FakeBridge, retry_ms: float = 0) -> Client:
    return Client("http://bridge:8080", retry_ms=retry_ms, transport=MockTransport(fake.answer))


async def prepare_and_divide(fake: FakeBridge, errors: Sequence[BridgeError], by: int) -> None:
    """Prepare a message and divide in the block of its transaction; what the block ends with has these errors."""
    async with client(fake) as bridge, bridge.transaction("tx") as transaction:
        await transaction.produce(Message("orders"))
        fake.errors = list(errors)
        _ = 1 / by


async def test_a_block_commits_what_it_prepared(fake: FakeBridge) -> None:
    async with client(fake) as bridge, bridge.transaction("tx/1", timeout_ms=5, check="https://h/c") as transaction:
        assert await transaction.produce(Message("orders", b"a", message_id="m1")) == "m1"
        named = await transaction.produce(Message("bills", b"b"))
    assert fake.requests == ["POST /v1/messages"] * 2 + ["POST /v1/transactions/tx/1/commit"]
    first, second = fake.prepared
    assert first[0] == Message("orders", b"a", message_id="m1", transaction_id="tx/1")
    assert second[0].message_id == named
    parameters = {"transaction": "prepare", "transaction-timeout": "5", "transaction-check": "https://h/c"}
    assert first[1] == {"version": "1.0.0", **parameters}


async def test_an_exception_rolls_back_and_is_raised(fake: FakeBridge) -> None:
    for errors in ([], [BackendUnavailable("down")]):
        with pytest.raises(ZeroDivisionError):
            await prepare_and_divide(fake, errors, 0)
    assert fake.requests == ["POST /v1/messages", "POST /v1/transactions/tx/rollback"] * 2


async def test_a_block_without_messages_sends_nothing(fake: FakeBridge) -> None:
    async with client(fake) as bridge, bridge.transaction():
        pass
    assert fake.requests == []


async def test_a_commit_is_repeated_and_its_refusal_raised(fake: FakeBridge) -> None:
    async with client(fake, retry_ms=30_000) as bridge, bridge.transaction("tx") as transaction:
        await transaction.produce(Message("orders"))
        fake.errors = [BackendUnavailable("down")]
    assert fake.requests.count("POST /v1/transactions/tx/commit") == 2
    with pytest.raises(TransactionEnded):
        await prepare_and_divide(fake, [TransactionEnded("It was rolled back.")], 1)


@pytest.fixture
def offline(fake: FakeBridge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge.client, "Client", lambda *_, **__: client(fake))


@pytest.mark.usefixtures("offline")
def test_the_commands_list_and_end(fake: FakeBridge) -> None:
    def oms(*arguments: str) -> str:
        return CliRunner().invoke(main, ["transaction", *arguments]).output

    facts = "messages 2, bytes 9, began 5, timeoutMills 60000\n"
    assert oms("list") == f"open: tx/1, {facts}"
    assert oms("commit", "tx/1") == f"committed: tx/1, {facts}"
    assert json.loads(oms("rollback", "tx/1", "--json"))["transactionId"] == "tx/1"
    assert fake.requests[1:] == ["POST /v1/transactions/tx/1/commit", "POST /v1/transactions/tx/1/rollback"]
    fake.errors = [TransactionEnded("It was rolled back.")]
    assert "It was rolled back." in oms("commit", "tx/1")


async def test_a_block_whose_messages_were_all_refused_ends_without_an_error(
    fake: FakeBridge, subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was prepared, so the bridge has no such transaction: it would answer `TransactionUnknown`."""
    for refusal in (DestinationInvalid("A dead-letter destination."), BackendUnavailable("down")):
        for leaves_with_an_error in (False, True):
            with subtests.test(f"{refusal.code}, {leaves_with_an_error}"):
                fake.requests.clear()
                with suppress(ZeroDivisionError):
                    async with client(fake) as bridge, bridge.transaction("tx") as transaction:
                        fake.errors = [refusal]
                        with pytest.raises(type(refusal)):
                            await transaction.produce(Message("orders.dlq", b"1"))
                        _ = 1 / (not leaves_with_an_error)
                assert fake.requests == ["POST /v1/messages"]
    assert not caplog.records


async def test_a_refused_message_among_others_leaves_the_rest_to_be_committed(fake: FakeBridge) -> None:
    async with client(fake) as bridge, bridge.transaction("tx") as transaction:
        fake.errors = [DestinationInvalid("A dead-letter destination.")]
        with pytest.raises(DestinationInvalid):
            await transaction.produce(Message("orders.dlq", b"1"))
        await transaction.produce(Message("orders", b"2"))
    assert fake.requests[-1] == "POST /v1/transactions/tx/commit"


async def test_a_message_whose_outcome_is_unknown_is_committed(fake: FakeBridge) -> None:
    async with client(fake) as bridge, bridge.transaction("tx") as transaction:
        fake.errors = [OutcomeUnknown("no answer")]
        with pytest.raises(OutcomeUnknown):
            await transaction.produce(Message("orders", b"1"))
    assert fake.requests[-1] == "POST /v1/transactions/tx/commit"
