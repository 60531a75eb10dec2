"""A traced bridge and a receiver of OTLP: which spans the way of a message has, whose trace they belong to."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from bridge import __version__
from bridge.errors import CannotStart
from bridge.settings import Settings, SettingsError
from bridge.settings.model import TracingSettings
from bridge.tracing import create_tracing
from bridge.tracing.spans import BatchSpan
from tests.http.callback_endpoint import OK, SECRET, Answer, Endpoint
from tests.launch import Bridge
from tests.tracing.receiver import PATIENCE, QUICK, Receiver, Seen

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
UNSAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
VERSION = {"x-oms-version": "1.0.0"}
MILLISECOND = 1_000_000
FAILED: Answer = (500, {})


class Client:
    """A client of a traced bridge."""

    def __init__(self, bridge: Bridge) -> None:
        self._url = bridge.url
        self._metrics = f"{bridge.management}/metrics"

    def ask(self, method: str, path: str, headers: dict[str, str], content: bytes | str = b"") -> httpx.Response:
        with httpx.Client(base_url=self._url, trust_env=False, timeout=PATIENCE) as http:
            response = http.request(method, path, headers=VERSION | headers, content=content)
        assert response.is_success, response.text
        return response

    def produce(self, destination: str, headers: dict[str, str] | None = None) -> httpx.Response:
        return self.ask("POST", "/v1/messages", {"x-oms-h-destination": destination} | (headers or {}), b"12345")

    def pull(self, destination: str, **params: str) -> httpx.Response:
        source = {"x-oms-source": destination, "x-oms-consumerid": "billing", "x-oms-waitmills": "10000"}
        return self.ask("GET", "/v1/messages", source | {f"x-oms-{name}": value for name, value in params.items()})

    def wait_for_waiting_pull(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while "\noms_waiting_pulls 1.0\n" not in httpx.get(self._metrics, trust_env=False, timeout=PATIENCE).text:
            assert time.monotonic() < deadline, "no pull waits"


def traced(receiver: Receiver, **settings: str) -> dict[str, str]:
    return {"OMS_TRACING__ENDPOINT": receiver.url, **QUICK, **settings}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver.over_http() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint().listen()
    yield endpoint
    endpoint.close()


@pytest.fixture(scope="module")
def client(receiver: Receiver, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    settings = traced(
        receiver,
        OMS_CALLBACKS__TARGETS=endpoint.url(""),
        OMS_CALLBACKS__NETWORKS="127.0.0.1/32",
        OMS_CALLBACKS__SECRETS=SECRET,
        OTEL_SERVICE_NAME="bridge of the shop",
    )
    with Bridge(tmp_path_factory.mktemp("traced"), settings=settings) as bridge:
        yield Client(bridge)


def messaging(span: Seen) -> dict[str, Any]:
    """Return the attributes of the semantic conventions without their prefix."""
    return {name.removeprefix("messaging."): value for name, value in span.attributes.items()}


def test_the_way_of_a_message_is_in_the_trace_of_its_producer(client: Client, receiver: Receiver) -> None:
    stored = client.produce("orders", SAMPLED)
    pulled = client.pull("orders", ack="true")
    client.ask("POST", "/v1/nack", {"x-oms-receipt": pulled.headers["x-oms-receipt"]})
    again = client.pull("orders", ack="true")
    client.ask("POST", "/v1/ack", {"x-oms-receipt": again.headers["x-oms-receipt"]})
    send, nack, ack, *pulls = receiver.wait_for("send orders", "nack orders", "ack orders", "pull orders")
    assert [pull.attributes["messaging.message.delivery_count"] for pull in pulls] == [1, 2]
    for span in (send, nack, ack, *pulls):
        assert (span.trace, span.parent, span.failed) == (TRACE, PARENT, False)
        assert span.kind == "CLIENT"
        assert span.links == (() if span is send else ((TRACE, PARENT),))
        assert span.begun <= span.ended
    common = {"system": "openmessaging", "destination.name": "orders", "message.body.size": 5}
    common |= {"message.id": stored.headers["x-oms-h-messageid"], "destination.partition.id": "0"}
    common["destination.partition.id"] = stored.headers["x-oms-h-partition"]
    assert messaging(send) == common | {"operation.name": "send", "operation.type": "send"}
    delivered = common | {"consumer.group.name": "billing", "message.delivery_count": 2}
    assert messaging(pulls[1]) == delivered | {"operation.name": "pull", "operation.type": "receive"}
    assert messaging(ack) == delivered | {"operation.name": "ack", "operation.type": "settle"}
    assert messaging(nack)["operation.type"] == "settle"
    assert pulled.headers["traceparent"] == SAMPLED["traceparent"], "a producer's context is passed on unchanged"
    assert pulled.headers["tracestate"] == "vendor=1"
    assert {"service.name": "bridge of the shop", "service.version": __version__}.items() <= send.resource.items()


def test_a_message_without_a_trace_gets_that_of_its_span(client: Client, receiver: Receiver) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.pull, "plain")
        client.wait_for_waiting_pull()
        client.produce("plain")
        pulled = waiting.result(PATIENCE)
    send, pull = receiver.wait_for("send plain", "pull plain")
    assert (send.kind, send.parent) == ("PRODUCER", "")
    version, trace, parent, flags = pulled.headers["traceparent"].split("-")
    assert (version, trace, parent, int(flags, 16) & 1) == ("00", send.trace, send.id, 1)
    assert pulled.headers["x-oms-h-traceid"] == send.trace
    assert (pull.trace, pull.parent, pull.links) == (send.trace, send.id, ((send.trace, send.id),))
    assert pull.begun >= send.begun - MILLISECOND, "a delivery begins when its message is stored"


def test_what_the_producer_does_not_sample_is_not_traced(client: Client, receiver: Receiver) -> None:
    client.produce("quiet", UNSAMPLED)
    assert client.pull("quiet").headers["traceparent"] == UNSAMPLED["traceparent"]
    client.produce("loud")
    client.pull("loud")
    receiver.wait_for("send loud", "pull loud")  # they were made after those of `quiet` would have been
    assert not [span for span in receiver.spans if span.name.endswith("quiet")]


def test_each_message_of_a_batch_has_its_span(client: Client, receiver: Receiver) -> None:
    traced = {"header": {"destination": "batch"}, "extensionHeader": {"traceparent": SAMPLED["traceparent"]}}
    others = [{"header": {"destination": name}} for name in ("batch", "batch.dlq")]
    batch = json.dumps([traced, *others])
    response = client.ask("POST", "/v1/messages", {"content-type": "application/json"}, batch)
    assert [each["status"] for each in response.json()] == [200, 200, 400], response.text
    one, two, bad = receiver.wait_for("send batch", "send batch.dlq")
    assert {one.trace == TRACE, two.trace == TRACE} == {True, False}
    assert {one.attributes["messaging.message.id"], two.attributes["messaging.message.id"]} == {
        each["messageId"] for each in response.json()[:2]
    }
    assert (bad.failed, bad.attributes["error.type"]) == (True, "destination-invalid")


def test_a_push_stream_traces_its_deliveries(client: Client, receiver: Receiver) -> None:
    client.produce("stream", SAMPLED)
    source = {"x-oms-source": "stream", "x-oms-consumerid": "billing", "x-oms-maxmessages": "1"}
    client.ask("GET", "/v1/push", source | {"accept": "application/x-ndjson"})
    (push,) = receiver.wait_for("push stream")
    assert (push.trace, push.parent, messaging(push)["operation.type"]) == (TRACE, PARENT, "receive")


def test_a_callback_is_traced_with_its_response(client: Client, receiver: Receiver, endpoint: Endpoint) -> None:
    answers = iter([FAILED, OK])
    endpoint.scripts["/token"] = lambda _: next(answers)
    source = {"x-oms-source": "posted", "x-oms-consumerid": "billing", "x-oms-callbackurl": endpoint.url("/token")}
    client.ask("POST", "/v1/push", source)
    client.produce("posted", SAMPLED)
    nack, ack, failed, succeeded = receiver.wait_for("nack posted", "ack posted", "callback posted")
    for span in (nack, ack, failed, succeeded):
        assert (span.trace, span.parent, span.links) == (TRACE, PARENT, ((TRACE, PARENT),))
    assert (failed.kind, failed.failed, failed.attributes["error.type"]) == ("CONSUMER", True, "500")
    assert succeeded.attributes["http.response.status_code"] == 200
    assert succeeded.attributes["server.port"] == endpoint.port
    assert "token" not in str(succeeded), "path and query of the URL may hold a secret"
    (first, _) = endpoint.posts
    assert first.headers["traceparent"] == SAMPLED["traceparent"]
    assert not [span for span in receiver.spans if span.name == "push posted"], "the callback is the delivery"


def test_a_receipt_that_has_ended_fails_its_span_only(client: Client, receiver: Receiver) -> None:
    receipts = []
    for key in "ab":
        client.produce("acks", SAMPLED | {"x-oms-h-messagekey": key})
        receipts.append(client.pull("acks", ack="true").headers["x-oms-receipt"])
    client.ask("POST", "/v1/nack", {"x-oms-receipt": receipts[0]})
    with pytest.raises(AssertionError, match="lease-ended"):
        client.ask("POST", "/v1/ack", {"x-oms-receipt": ",".join(receipts)})
    (ack,) = receiver.wait_for("ack acks")
    assert not ack.failed, "this lease was acknowledged; the other one had ended, and has no span"


def end_of(transaction: str, receiver: Receiver, *, failed: bool = False) -> Seen:
    """Wait for the span of a commit or rollback."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for span in tuple(receiver.spans):
            if (span.attributes.get("oms.transaction.id"), span.failed) == (transaction, failed):
                return span
        time.sleep(0.02)
    raise AssertionError(f"the end of the transaction {transaction} does not come")


def test_a_transaction_is_traced_from_its_prepares_to_its_end(client: Client, receiver: Receiver) -> None:
    for name, end in (("kept", "commit"), ("dropped", "rollback")):
        prepare = {"x-oms-transaction": "prepare", "x-oms-h-transactionid": name}
        client.produce(f"{name}-a", prepare | SAMPLED)
        client.produce(f"{name}-b", prepare)
        client.ask("POST", f"/v1/transactions/{name}/{end}", {})
        first, second = receiver.wait_for(f"prepare {name}-a", f"prepare {name}-b")
        ended = end_of(name, receiver)
        assert ended.name == end
        assert [span.kind for span in (first, second, ended)] == ["PRODUCER", "PRODUCER", "CLIENT"]
        assert (first.trace, first.parent, first.attributes["messaging.operation.type"]) == (TRACE, PARENT, "create")
        assert (ended.trace, ended.parent) == (TRACE, PARENT)
        assert set(ended.links) == {(TRACE, PARENT), (second.trace, second.id)}
        assert messaging(ended).get("operation.type") == {"commit": "send", "rollback": None}[end]
        assert messaging(ended)["batch.message_count"] == 2
        assert ended.attributes["oms.transaction.id"] == name
        assert not any(span.failed for span in (first, second, ended))
    [prepared] = receiver.wait_for("prepare kept-b")
    _, trace, span, _ = client.pull("kept-b").headers["traceparent"].split("-")
    assert (trace, span) == (prepared.trace, prepared.id), "consumers get the context of the span"


def test_prepares_that_wait_for_a_journal_are_traced(receiver: Receiver, tmp_path: Path) -> None:
    with Bridge(tmp_path, backend=f"memory://?journal={tmp_path / 'journal'}", settings=traced(receiver)) as bridge:
        client = Client(bridge)
        client.produce("journal", {"x-oms-transaction": "prepare", "x-oms-h-transactionid": "j"})
        client.ask("POST", "/v1/transactions/j/commit", {})
        [prepared], ended = receiver.wait_for("prepare journal"), end_of("j", receiver)
    assert not prepared.failed
    assert ended.links == ((prepared.trace, prepared.id),)


def test_a_commit_that_is_refused_fails_its_span(client: Client, receiver: Receiver) -> None:
    prepare = {"x-oms-transaction": "prepare", "x-oms-h-transactionid": "ended"}
    client.produce("ended", prepare | SAMPLED)
    client.ask("POST", "/v1/transactions/ended/rollback", {})
    with pytest.raises(AssertionError, match="transaction-ended"):
        client.ask("POST", "/v1/transactions/ended/commit", {})
    assert end_of("ended", receiver, failed=True).attributes["error.type"] == "transaction-ended"


def test_spans_go_over_grpc_and_roots_follow_the_ratio(tmp_path: Path) -> None:
    with Receiver.over_grpc() as receiver:
        settings = traced(receiver, OMS_TRACING__PROTOCOL="grpc", OMS_TRACING__RATIO="0")
        with Bridge(tmp_path, server="granian", settings=settings) as bridge:
            client = Client(bridge)
            client.produce("roots")
            assert "traceparent" not in client.pull("roots").headers
            client.produce("orders", SAMPLED)
            (span,) = receiver.wait_for("send orders")
            assert bridge.terminate() == 0
        assert (span.trace, {each.name for each in receiver.spans}) == (TRACE, {"send orders"})


def test_the_last_spans_are_sent_when_the_bridge_stops(receiver: Receiver, tmp_path: Path) -> None:
    settings = traced(receiver, OTEL_BSP_SCHEDULE_DELAY="3600000")
    with Bridge(tmp_path, settings=settings) as bridge:
        Client(bridge).produce("last")
        assert bridge.terminate() == 0
    assert receiver.wait_for("send last")


def test_a_receiver_that_is_away_fails_no_request(tmp_path: Path) -> None:
    with Receiver.over_http() as gone:
        pass
    with Bridge(tmp_path, settings=traced(gone)) as bridge:
        client = Client(bridge)
        client.produce("orders")
        assert client.pull("orders").content == b"12345"
        assert bridge.terminate() == 0
        assert "internal error" not in bridge.log


def test_a_batch_of_the_mirror_that_fails_has_its_error(receiver: Receiver) -> None:
    tracing = create_tracing(Settings(tracing=TracingSettings(endpoint=receiver.url)))
    assert tracing is not None
    with pytest.raises(CannotStart), BatchSpan.during(tracing):
        raise CannotStart("The checkpoint is damaged.")
    asyncio.run(tracing.close())
    [span] = receiver.wait_for("mirror")
    assert (span.failed, span.attributes["error.type"]) == (True, "CannotStart")


def test_without_an_endpoint_nothing_is_imported() -> None:
    script = (
        "import sys; from bridge.parts_from_settings import create_engine; from bridge.tracing import create_tracing;"
        "from bridge.engine.clock import SystemClock; from bridge.engine.engine import Engine;"
        "from bridge.settings import Settings; import bridge.mirror.job;"
        "assert type(create_engine(Settings(), SystemClock(), create_tracing(Settings()))) is Engine;"
        "off = ('opentelemetry', 'bridge.tracing.spans', 'bridge.tracing.engine', 'grpc');"
        "assert not [name for name in sys.modules if name.startswith(off)]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_missing_extra_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "bridge.tracing.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    settings = Settings(tracing=TracingSettings(endpoint="http://collector:4318"))
    with pytest.raises(SettingsError, match=r"pip install 'openmessaging-bridge\[otel\]'"):
        create_tracing(settings)


@pytest.mark.parametrize(
    "url", ["collector:4318", "http://", "http://me:secret@collector", "http://a/?b", "http://[::1"]
)
def test_an_endpoint_that_is_no_url_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ValueError, match="must be a URL such as") as caught:
        TracingSettings(endpoint=url)
    assert "secret" not in str(caught.value)
