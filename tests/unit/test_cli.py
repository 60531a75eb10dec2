import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import click
import httpx
import pytest
from click.testing import CliRunner, Result

import bridge.client
import bridge.parts_from_settings
import bridge.process
from adapters.base import Features, Support
from bridge.cli.command import Output
from bridge.cli.program import main
from bridge.client.transport import ConnectionBroken, HttpTransport, NotConnected
from bridge.errors import BackendUnavailable, BridgeError, DestinationUnknown, encode_problem, problem_members
from bridge.long_work import run_at_once
from bridge.message import Message
from bridge.settings import Settings, SettingsError
from bridge.wire import json_errors, multipart
from bridge.wire.headers import encode, parse
from tests.mock_transport import MockTransport

DOCUMENT = Path(__file__).parents[2] / "docs" / "command-line.md"


class Bridge:
    """As much of a bridge as the commands need: one queue, every message refused whose body is `refused`."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.batches: list[int] = []
        self.acknowledged: list[str] = []
        self.required: str | None = None
        self.pulls: list[dict[str, str]] = []
        self.callbacks: list[tuple[dict[str, str], str]] = []
        self.host: str | None = None
        self.failures = 0
        """Requests that fail before any other."""

    def respond(self, request: httpx.Request) -> httpx.Response:
        if not self.failures:
            return self.answer(request)
        self.failures -= 1
        pairs, body = encode_problem(BackendUnavailable("The broker is away."))
        return httpx.Response(503, headers=pairs, content=body)

    def answer(self, request: httpx.Request) -> httpx.Response:
        headers = parse(request.headers.raw)
        self.host = request.url.netloc.decode()
        if request.url.path == "/v1/capabilities":
            return httpx.Response(200, json={"limits": {"body": 4 << 20}})
        if request.method == "GET":
            self.pulls.append(headers.parameters)
            return self._pull()
        if request.url.path == "/v1/push":
            return self._register(headers.parameters, request.headers.get("accept", ""))
        if request.url.path == "/v1/ack":
            self.acknowledged.append(headers.parameters["receipt"])
            return httpx.Response(204)
        if "destination" not in headers.fields:
            boundary = multipart.boundary_of(request.headers["content-type"])
            batch = run_at_once(multipart.decode(request.content, boundary, 1000, 10_000))
            self.batches.append(len(batch))
            return httpx.Response(207, json=[self._result(m) for m in batch if isinstance(m, Message)])
        self.required = headers.parameters.get("require")
        return self._store(headers.message(request.content))

    def _register(self, parameters: dict[str, str], accept: str) -> httpx.Response:
        self.callbacks.append((parameters, accept))
        url = parameters["callbackurl"]
        shown = {"url": url, "state": "delivering", "kept": "memory"}
        return httpx.Response(201, json=shown) if url else httpx.Response(204)

    def _store(self, message: Message) -> httpx.Response:
        result = self._result(message)
        if result["status"] != 200:
            return httpx.Response(404, json=result)
        reply = {"x-oms-h-messageid": f"{result['messageId']}", "x-oms-h-storehost": "h", "x-oms-h-storetimestamp": "1"}
        return httpx.Response(200, headers=reply | {"x-oms-offset": "7", "x-oms-applied": "delayTime=native"})

    def _result(self, message: Message) -> dict[str, object]:
        if message.body == b"refused":
            return problem_members(DestinationUnknown("There is no such destination."))
        self.messages.append(message)
        return {"status": 200, "messageId": f"m{len(self.messages)}", "storeTimestamp": 1, "storeHost": "h"}

    def _pull(self) -> httpx.Response:
        if not self.messages:
            return httpx.Response(204)
        message = self.messages.pop(0)._replace(delivery_count=1)
        lease = [(b"x-oms-receipt", b"r%d" % len(self.pulls)), (b"x-oms-leaseuntil", b"5")]
        return httpx.Response(200, headers=encode(message) + lease, content=message.body)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Bridge:
    fake = Bridge()

    class Offline(bridge.client.Client):
        def __init__(self, url: str, *, verify: bool, retry_ms: int, token_file: Path | None) -> None:
            assert (verify, token_file) == (True, None)
            super().__init__(url, retry_ms=retry_ms, transport=MockTransport(fake.respond, url))

    monkeypatch.setattr(bridge.client, "Client", Offline)
    return fake


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OMS_")]:
        monkeypatch.delenv(name)


def oms(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin, prog_name="oms-bridge")


def test_produce_prints_where_the_message_is(fake: Bridge) -> None:
    result = oms(
        "produce", "orders", "hé", "--key", "k", "--property", "a=b=c", "--delay-ms", "5", "--require", "delayTime"
    )
    assert (result.exit_code, result.stdout) == (0, "stored m1, offset 7, delayTime native\n")
    (message,) = fake.messages
    assert message == Message("orders", "hé".encode(), {"a": "b=c"}, message_key="k", delay_time=5)
    assert fake.required == "delayTime"


def test_produce_as_json_and_the_other_fields(fake: Bridge) -> None:
    result = oms(
        *("produce", "orders", "x", "--priority", "9", "--partition", "0", "--expire-ms", "60000"),
        *("--content-type", "text/plain", "--json"),
    )
    assert json.loads(result.stdout) == {
        "messageId": "m1",
        "partition": None,
        "offset": 7,
        "storeTimestamp": 1,
        "storeHost": "h",
        "applied": {"delayTime": "native"},
    }
    (message,) = fake.messages
    assert (message.priority, message.partition, message.content_type) == (9, 0, "text/plain")
    assert message.expire_time is not None
    assert message.expire_time > 1_700_000_000_000


def test_produce_reads_a_file_or_standard_input_byte_by_byte(fake: Bridge, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"\xff\r\n\0")
    assert oms("produce", "orders", "--file", str(tmp_path / "body")).exit_code == 0
    assert oms("produce", "orders", "--file", "-", stdin=b"\xfe\n").exit_code == 0
    assert [message.body for message in fake.messages] == [b"\xff\r\n\0", b"\xfe\n"]


def test_a_body_need_not_be_utf8_but_everything_else_must(fake: Bridge) -> None:
    assert oms("produce", "orders", os.fsdecode(b"\xff")).exit_code == 0
    assert fake.messages[0].body == b"\xff"
    result = oms("produce", "orders", "x", "--key", os.fsdecode(b"\xff"))
    assert (result.exit_code, len(fake.messages)) == (2, 1)
    assert "not UTF-8" in result.stderr


def test_lines_travel_in_batches(fake: Bridge) -> None:
    lines = b"".join(b"%d\n" % number for number in range(1200)) + b"\n\r\nlast"
    result = oms("produce", "orders", "--file", "-", "--lines", stdin=lines)
    assert result.exit_code == 0
    assert result.stdout.startswith("stored m1\nstored m2\n")
    assert fake.batches == [500, 500, 203]
    assert [message.body for message in fake.messages[-4:]] == [b"1199", b"", b"\r", b"last"]


def test_the_byte_order_mark_of_lines_is_not_sent(fake: Bridge) -> None:
    for lines in (b"\xef\xbb\xbffirst\nsecond\n", b"\xef\xbb\xbf"):
        assert oms("produce", "orders", "--file", "-", "--lines", stdin=lines).exit_code == 0
    assert oms("produce", "orders", "--file", "-", stdin=b"\xef\xbb\xbfwhole").exit_code == 0
    assert [message.body for message in fake.messages] == [b"first", b"second", b"", b"\xef\xbb\xbfwhole"]


def test_a_batch_of_lines_ends_at_a_mebibyte_too(fake: Bridge) -> None:
    result = oms("produce", "orders", "--file", "-", "--lines", stdin=(b"x" * 700_000 + b"\n") * 3)
    assert (result.exit_code, fake.batches) == (0, [2, 1])


def test_a_refused_line_is_named_and_ends_the_work_after_its_batch(fake: Bridge) -> None:
    lines = b"a\nrefused\nb\n" + b"x\n" * 600
    result = oms("produce", "orders", "--file", "-", "--lines", stdin=lines)
    assert (result.exit_code, fake.batches, len(fake.messages)) == (1, [500], 499)
    assert result.stderr == "Error: line 2: There is no such destination.\n"
    result = oms("produce", "orders", "--file", "-", "--lines", stdin=b"x\n" * 500 + b"refused\n")
    assert (result.exit_code, result.stderr) == (1, "Error: line 501: There is no such destination.\n")
    result = oms("produce", "orders", "--file", "-", "--lines", "--json", stdin=b"refused\n")
    assert json.loads(result.stderr)["code"] == "destination-unknown"


@pytest.mark.parametrize(("given", "stdin"), [(["x"], None), (["--file", "-", "--lines"], b"a\nb\n")])
def test_what_may_succeed_later_is_repeated_if_asked_for(fake: Bridge, given: list[str], stdin: bytes | None) -> None:
    fake.failures = 1
    assert oms("produce", "orders", *given, stdin=stdin).exit_code == 1
    fake.failures = 1
    assert oms("produce", "orders", *given, "--retry-ms", "60000", stdin=stdin).exit_code == 0
    assert len(fake.messages) == (1 if stdin is None else 2)
    assert None not in {message.message_id for message in fake.messages}


def test_a_mistyped_produce_sends_nothing(fake: Bridge, subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, ...]] = [
        ("orders",),
        ("orders", "body", "--file", "-"),
        ("orders", "body", "--lines"),
        ("orders", "--file", "-", "--lines", "--require", "priority"),
        ("orders", "body", "--property", "a"),
        ("orders", "body", "--property", "=a"),
        ("orders", "body", "--property", "a=1", "--property", "a=2"),
        ("orders", "body", "--priority", "11"),
        ("orders", "body", "--url", "bridge"),
        ("orders", "body", "--ca", "/nowhere"),
        ("orders", "body", "--ca", __file__),
        ("orders", "body", "--cert", __file__),
        ("orders", "body", "--cert-key", __file__),
    ]
    for arguments in cases:
        with subtests.test(arguments=arguments):
            result = oms("produce", *arguments, stdin=b"x")
            assert result.exit_code == 2
            assert result.stderr.startswith("Usage: ")
            assert fake.messages == []


def test_the_address_of_the_bridge_may_be_a_variable_and_the_option_wins(
    fake: Bridge, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setenv("OMS_URL", "http://bridge:1")
    cases: list[tuple[tuple[str, ...], str]] = [((), "bridge:1"), (("--url", "http://other:2"), "other:2")]
    for arguments, host in cases:
        with subtests.test(host):
            assert oms("produce", "orders", "x", *arguments).exit_code == 0
            assert fake.host == host


def test_an_error_that_tls_explains_names_the_option(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[str, Exception, str]] = [
        ("https://b:1", NotConnected("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"), "with --ca."),
        ("https://b:1", NotConnected("[SSL: WRONG_VERSION_NUMBER] wrong version number"), "use http://."),
        ("https://b:1", ConnectionBroken(""), "use --cert and --cert-key."),
        ("http://b:1", ConnectionBroken("broken"), "use https:// and name its authority with --ca."),
        ("http://b:1", NotConnected("OSError: refused"), "(OSError: refused)."),
    ]
    for url, error, end in cases:
        with subtests.test(url=url, error=error):

            def fail(*_: object, error: Exception = error, **__: object) -> object:
                raise error

            monkeypatch.setattr(HttpTransport, "send", fail)
            result = oms("produce", "orders", "x", "--url", url)
            assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
            assert result.stderr.endswith(f"{end}\n")


def test_an_error_is_one_sentence_or_the_problem_document(fake: Bridge) -> None:
    result = oms("produce", "orders", "refused")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: There is no such destination.\n"
    result = oms("produce", "orders", "refused", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert json.loads(result.stderr)["code"] == "destination-unknown"
    assert fake.messages == []


def test_an_unreachable_bridge_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> object:
        raise NotConnected("refused")

    monkeypatch.setattr(HttpTransport, "send", unreachable)
    result = oms("pull", "orders", "--group", "g", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stderr)["retrySafe"] is True


def test_pull_prints_then_acknowledges(fake: Bridge) -> None:
    fake.messages = [Message("orders", "é\x1b[2J\n".encode(), {"A": "ü"}, message_id="m1")]
    result = oms("pull", "orders", "--group", "billing", "--wait-ms", "50")
    assert (result.exit_code, fake.acknowledged) == (0, ["r1"])
    assert result.stdout.splitlines() == [
        "x-oms-version: 1.0.0",
        "x-oms-h-destination: orders",
        "x-oms-h-messageid: m1",
        "x-oms-h-deliverycount: 1",
        "x-oms-p-%41*: UTF-8''%C3%BC",
        "content-type: application/octet-stream",
        "x-oms-receipt: r1",
        "",
        "é\\x1b[2J",
        "",
        "",
    ]
    (asked,) = fake.pulls
    assert (asked["source"], asked["consumerid"], asked["ack"], asked["waitmills"]) == (
        "orders",
        "billing",
        "true",
        "50",
    )


def test_pull_of_nothing_has_an_exit_status_of_its_own(fake: Bridge) -> None:
    result = oms("pull", "orders", "--group", "billing")
    assert (result.exit_code, result.output, len(fake.pulls)) == (3, "", 1)


def test_pull_takes_as_many_as_there_are(fake: Bridge) -> None:
    fake.messages = [Message("orders", b"%d" % number) for number in range(5)]
    assert oms("pull", "orders", "--group", "g", "--count", "2", "--raw").stdout_bytes == b"01"
    assert oms("pull", "orders", "--group", "g", "--count", "9", "--raw").stdout_bytes == b"234"
    assert fake.acknowledged == ["r1", "r2", "r3", "r4", "r5"]


def test_pull_without_ack_leaves_the_lease_alone(fake: Bridge) -> None:
    fake.messages = [Message("orders")]
    result = oms("pull", "orders", "--group", "g", "--no-ack")
    assert (result.exit_code, fake.acknowledged, fake.pulls[0]["ack"]) == (0, [], "true")
    assert "x-oms-receipt: r1" in result.stdout


def test_what_cannot_be_printed_is_not_acknowledged(fake: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    fake.messages = [Message("orders")]
    monkeypatch.setattr(Output, "write", broken)
    result = oms("pull", "orders", "--group", "g")
    assert (result.exit_code, result.output, fake.acknowledged) == (1, "", [])


def test_pull_as_json_is_the_form_of_the_specification(fake: Bridge) -> None:
    message = Message("orders", b"\xff", {"a": "b"}, message_id="m1", message_key="k")
    fake.messages = [message]
    line = json.loads(oms("pull", "orders", "--group", "g", "--json").stdout)
    assert (line.pop("receipt"), line.pop("leaseUntil")) == ("r1", 5)
    assert json_errors.decode(line) == message._replace(delivery_count=1)


def test_a_body_that_is_no_text_is_described(fake: Bridge) -> None:
    fake.messages = [Message("orders", b"\xff\xfe")]
    assert "(2 bytes that are not text; --raw prints them)" in oms("pull", "orders", "--group", "g").stdout


def test_pull_is_raw_or_json(fake: Bridge) -> None:
    assert oms("pull", "orders", "--group", "g", "--raw", "--json").exit_code == 2
    assert oms("pull", "orders").exit_code == 2
    assert fake.pulls == []


def running(monkeypatch: pytest.MonkeyPatch, outcome: int | Exception) -> list[Settings]:
    """Let `serve` run this instead of a bridge; returns the settings that it gets."""
    seen: list[Settings] = []

    async def run(settings: Settings, announce: Callable[[str], None]) -> int:
        seen.append(settings)
        if isinstance(outcome, Exception):
            raise outcome
        announce("ready")
        return outcome

    monkeypatch.setattr(bridge.process, "run", run)
    return seen


def test_serve_passes_the_settings_announces_and_ends_with_the_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = running(monkeypatch, 5)
    (tmp_path / "bridge.yaml").write_text("drain: 7\nserver: granian\n")
    monkeypatch.setenv("OMS_LIMITS__BATCH", "3")
    result = oms(
        *("serve", "--config", str(tmp_path / "bridge.yaml"), "--backend", "a://b", "--listen", "[::1]:1"),
        *("--management", "a:2", "--server", "hypercorn", "--log-level", "error", "--log-format", "text"),
    )
    assert (result.exit_code, result.output) == (5, "ready\n")
    (settings,) = seen
    assert (settings.drain, settings.limits.batch, settings.backend) == (7, 3, "a://b")
    assert (str(settings.listen), str(settings.management)) == ("[::1]:1", "a:2")
    assert (settings.server, settings.log.level, settings.log.format) == ("hypercorn", "error", "text")


def test_an_error_that_stops_serve_is_one_sentence(monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    cases: list[Exception] = [
        SettingsError("No adapter."),
        BackendUnavailable("No backend."),
        OSError(98, "Address already in use"),
        RuntimeError("granian is missing."),
        ExceptionGroup(
            "unhandled errors in a TaskGroup", [ExceptionGroup("", [OSError(98, "Address already in use")])]
        ),
    ]
    for error in cases:
        with subtests.test(error=error):
            running(monkeypatch, error)
            result = oms("serve")
            assert result.exit_code == 1
            assert result.output.count("\n") == 1
            assert result.stderr.startswith("Error: ")


def test_a_defect_stays_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, KeyError("defect"))
    assert isinstance(oms("serve").exception, KeyError)


def test_a_wrong_setting_stops_serve_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = running(monkeypatch, 0)
    result = oms("serve", "--listen", "8080")
    assert (result.exit_code, seen) == (1, [])
    assert result.stderr.startswith("Error: --listen: host:port is expected,")


class Backend:
    features = Features(fields={"priority": Support.NATIVE}, durable=True, late_groups=False)

    def __init__(self, error: Exception | None) -> None:
        self.calls: list[str] = []
        self._error = error

    async def start(self) -> None:
        self.calls.append("start")
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        self.calls.append("close")


def backend(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> Backend:
    backend = Backend(error)
    monkeypatch.setattr(bridge.parts_from_settings, "create_adapter", lambda _settings: backend)
    return backend


def test_check_says_what_it_found_and_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = backend(monkeypatch)
    monkeypatch.setenv("OMS_BACKEND", "amqp://u:hunter2@mq/shop")
    result = oms("check", "--json")
    assert (result.exit_code, opened.calls) == (0, ["start", "close"])
    assert json.loads(result.stdout) == {
        "backend": "amqp://u:***@mq/shop",
        "listen": "127.0.0.1:8080",
        "management": "127.0.0.1:9090",
        "server": "granian",
        "serverReason": "installed by the extra fast",
        "durable": True,
        "lateGroups": False,
        "sharedGroups": False,
        "fields": {"priority": "native"},
    }
    lines = oms("check").stdout.splitlines()
    assert [line.split() for line in lines][-4:] == [
        ["durable:", "true"],
        ["lateGroups:", "false"],
        ["sharedGroups:", "false"],
        ["priority:", "native"],
    ]


def test_check_fails_and_closes_the_backend(monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    cases: list[Exception] = [BackendUnavailable("No backend."), SettingsError("Wrong.")]
    for error in cases:
        with subtests.test(error=error):
            opened = backend(monkeypatch, error)
            result = oms("check", "--json")
            assert (result.exit_code, result.stdout, opened.calls) == (1, "", ["start", "close"])
            assert json.loads(result.stderr)["detail"] == str(error)
            assert ("code" in json.loads(result.stderr)) == isinstance(error, BridgeError)


def test_check_opens_the_authorities_of_callbacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened = backend(monkeypatch)
    (tmp_path / "ca.pem").write_text("no PEM")
    monkeypatch.setenv("OMS_CALLBACKS__TARGETS", "https://shop.example")
    monkeypatch.setenv("OMS_CALLBACKS__SECRETS", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert oms("check").exit_code == 0
    monkeypatch.setenv("OMS_CALLBACKS__CA", str(tmp_path / "ca.pem"))
    result = oms("check")
    assert (result.exit_code, result.stdout, opened.calls) == (1, "", ["start", "close"])
    assert result.stderr == "Error: callbacks.ca: the file holds no certificates in PEM form.\n"


def test_conformance_passes_arguments_after_the_url_to_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def run(arguments: list[str]) -> int:
        seen.append(arguments)
        return 4

    monkeypatch.setattr(pytest, "main", run)
    assert oms("conformance", "http://bridge:8080", "-k", "delay", "--maxfail=1", "-x").exit_code == 4
    assert seen[0][:2] == ["-c", os.devnull]  # a venv inside a project: pytest would take that project's settings
    assert "-pno:cacheprovider" in seen[0]  # it would write beside the installed package
    assert seen[0][-6:] == ["--bridge-url", "http://bridge:8080", "-k", "delay", "--maxfail=1", "-x"]


def test_pytest_finds_the_suite_from_any_folder_and_knows_its_option(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --an-option-of-another-project\n")
    program = [sys.executable, "-c", "from bridge.cli.program import main; main()"]
    command = [*program, "conformance", "http://127.0.0.1:1", "--collect-only", "-q"]
    environ = os.environ | {"PYTHONPATH": str(DOCUMENT.parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, "test_produce.py" in done.stdout) == (0, True), done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["pytest.ini"]


def test_callback_registers_and_stops(fake: Bridge) -> None:
    named = ("callback", "orders", "--group", "billing")
    url = "http://127.0.0.1:8081/in"
    assert (
        oms(*named, "--to", url).stdout
        == f"registered: orders, group billing, url {url}, state delivering, kept memory\n"
    )
    batches = oms(*named, "--to", url, "--credit", "4", "--max-messages", "100", "--form", "json", "--json")
    assert json.loads(batches.stdout) == {"url": url, "state": "delivering", "kept": "memory"}
    assert oms(*named, "--stop").stdout == "stopped: orders, group billing\n"
    asked = {"version": "1.0.0", "source": "orders", "consumerid": "billing", "callbackurl": url}
    assert fake.callbacks[0][0] == asked
    assert fake.callbacks[1] == ({**asked, "credit": "4", "maxmessages": "100"}, "application/json")
    assert fake.callbacks[2][0] == {**asked, "callbackurl": ""}


def test_a_mistyped_callback_sends_nothing(fake: Bridge) -> None:
    named = ("callback", "orders", "--group", "billing")
    for more in ((), ("--to", "http://h/", "--stop"), ("--to", "http://h/", "--form", "json"), ("--max-messages", "0")):
        assert oms(*named, *more).exit_code == 2
    assert fake.callbacks == []


@pytest.mark.parametrize("missing", ["pytest", "pytest_asyncio", "openmessaging_conformance"])
def test_conformance_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr("bridge.cli.program.find_spec", lambda name: None if name == missing else find_spec(name))
    result = oms("conformance", "http://bridge:8080")
    assert result.exit_code == 1
    assert result.stderr == "Error: The suite needs pip install 'openmessaging-bridge[conformance]'.\n"


def commands() -> Iterator[tuple[str, click.Command]]:
    return iter(main.commands.items())


def test_every_command_has_help_with_an_example_and_a_chapter() -> None:
    chapters = DOCUMENT.read_text()
    for name, command in commands():
        assert f"oms-bridge {name} " in oms(name, "--help").stdout.split("Options:")[0]
        assert f"\n## {name}\n" in chapters
        assert all(option.help for option in command.params if isinstance(option, click.Option))


def test_help_imports_nothing_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bridge.process", "bridge.settings", "bridge.client"):
        monkeypatch.setitem(sys.modules, name, None)
    for name, _command in commands():
        assert oms(name, "--help").exit_code == 0
    assert oms("--version").stdout.startswith("oms-bridge, version ")
