"""`mirror restore` through a real bridge."""

import asyncio
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bridge.cli.program import main
from bridge.client import Client
from bridge.message import Message
from bridge.mirror import restore as sender
from bridge.mirror.restore import State
from tests.launch import Bridge
from tests.mirror.made import NOON, Batch, make_mirror, message, some

HOUR = 3_600_000
FULL = Message(
    "orders",
    gzip.compress(b"\x00\xff body"),
    {"region": "eu", "Ünïcode ☃": " spaces ", "line": "a\r\nb"},
    message_id="every-field",
    born_timestamp=NOON,
    born_host="10.0.0.7",
    qos=0,
    compression="gzip",
    partition=2,
    store_timestamp=NOON + 3,
    store_host="old",
    message_key="customer ü",
    correlation_id="c",
    trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
    transaction_id="t",
    delay_time=1000,
    expire_time=NOON + 400 * 365 * 24 * HOUR,
    priority=7,
    durability=1,
    content_type="application/json; charset=utf-8",
    traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    tracestate="vendor=1",
)
BARE = Message("orders", message_id="bare", store_timestamp=NOON)


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    with Bridge(tmp_path_factory.mktemp("bridge")) as bridge:
        yield bridge


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "mirror"


Command = Callable[..., Result]


@pytest.fixture
def command(out: Path, bridge: Bridge) -> Command:
    def run(*arguments: str, url: str = bridge.url) -> Result:
        given = ["mirror", "restore", "--out", str(out), "--url", url, *arguments]
        return CliRunner().invoke(main, given, catch_exceptions=False)

    return run


def pulled(bridge: Bridge, destination: str) -> list[Message]:
    async def pull() -> list[Message]:
        found = []
        async with Client(bridge.url) as client:
            while delivery := await client.pull(destination, "test", ack=False):
                found.append(delivery.message)
        return found

    return asyncio.run(pull())


def test_every_field_of_a_message_comes_back(out: Path, command: Command, bridge: Bridge) -> None:
    make_mirror(out, [Batch({("orders/2", 5): FULL, ("orders/0", 1): BARE})])
    outcome = command("--to-destination", "fields")
    assert (outcome.exit_code, outcome.stdout) == (0, "2 sent, 0 expired and skipped, 0 refused\n")
    found = {m.message_id: m for m in pulled(bridge, "fields")}
    full = found["every-field"]
    said_anew = {"partition", "store_timestamp", "store_host", "delivery_count"}
    kept = set(Message._fields) - said_anew
    expected = FULL._replace(
        destination="fields",
        properties={**FULL.properties, "oms-restored-from": "orders/2/5"},
        body=gzip.decompress(FULL.body),  # as a bridge hands it to who does not take gzip
        compression=None,
    )
    assert {name: getattr(full, name) for name in kept} == {name: getattr(expected, name) for name in kept}
    assert found["bare"].properties == {"oms-restored-from": "orders/0/1"}
    assert found["bare"].body == b""


def test_the_order_of_each_log_and_the_selection(out: Path, command: Command, bridge: Bridge) -> None:
    later = {("a/0", n): message(n, "a", message_key="k", store_timestamp=NOON + HOUR * n) for n in range(4, 8)}
    make_mirror(
        out, [Batch(later | some(3, "b")), Batch({("a/0", n): message(n, "a", message_key="k") for n in range(4)})]
    )
    assert command("--destination", "a", "--to-destination", "ordered").exit_code == 0
    assert [m.message_id for m in pulled(bridge, "ordered")] == [f"a-{n}" for n in range(8)]
    times = ("--from", "2025-11-21T12:00:03", "--to", "2025-11-21T17")  # 12:00:03.005 is the first, 17:00 not there
    assert command(*times, "--to-destination", "timed").exit_code == 0
    assert [m.message_id for m in pulled(bridge, "timed")] == ["a-3", "a-4"]
    assert command("--message-id", "b-1", "--message-id", "a-2", "--to-destination", "named").exit_code == 0
    assert {m.message_id for m in pulled(bridge, "named")} == {"a-2", "b-1"}


def test_times_are_those_of_storing_whenever_it_was_mirrored(
    out: Path, command: Command, subtests: pytest.Subtests
) -> None:
    """A backlog of a year is mirrored on one day, which by the mirror's clock may also be before the broker's."""
    for days in (400, -1):
        make_mirror(out, [Batch({(f"a{days}/0", 0): message(0, "a")}, mirrored=NOON + days * 24 * HOUR)])
    for chosen in ("2025-11-21T00:00:00", "2025-11-21T23:00:00"), ("2025-11-21T12:00:00", "2025-11-21T12:00:01"):
        with subtests.test(chosen=chosen):
            planned = command("--from", chosen[0], "--to", chosen[1], "--dry-run", "--json")
            assert [amount["rows"] for amount in json.loads(planned.stdout)["amount"]] == [2]


def test_of_a_log_with_several_lives_the_earlier_comes_first(out: Path, command: Command, bridge: Bridge) -> None:
    first = {(f"zz/s/{p}", p): message(p, "s", message_id=f"first-{p}") for p in range(2)}
    second = {("aa/s/0", 0): message(60, "s", message_id="second")}
    make_mirror(out, [Batch(second), Batch(first)], backend="memory")
    assert command("--to-destination", "lives").exit_code == 0
    assert [m.message_id for m in pulled(bridge, "lives")] == ["first-0", "first-1", "second"]


def test_dead_letters_to_where_they_came_from(out: Path, command: Command, bridge: Bridge) -> None:
    make_mirror(out, [Batch(some(2) | some(2, "orders.dlq"))])
    outcome = command("--area", "dead-letters", "--to-destination", "again", "--rate", "1000")
    assert outcome.exit_code == 0
    assert {m.message_id for m in pulled(bridge, "again")} == {"orders.dlq-0", "orders.dlq-1"}


def test_what_has_expired(out: Path, command: Command, bridge: Bridge) -> None:
    make_mirror(out, [Batch({("x/0", 0): message(0, "x", expire_time=NOON + HOUR), ("x/0", 1): message(1, "x")})])
    assert command("--to-destination", "fresh").stdout == "1 sent, 1 expired and skipped, 0 refused\n"
    assert [m.message_id for m in pulled(bridge, "fresh")] == ["x-1"]
    assert command("--to-destination", "stale", "--expired").stdout.startswith("2 sent")
    stale, _ = pulled(bridge, "stale")
    assert (stale.expire_time, stale.properties["oms-restored-expiretime"]) == (None, str(NOON + HOUR))


def test_a_delay_that_is_over_is_not_waited_for_again(out: Path, command: Command, bridge: Bridge) -> None:
    make_mirror(out, [Batch({("x/0", 0): message(0, "x", delay_time=24 * HOUR)})])
    assert command("--to-destination", "prompt").exit_code == 0
    (found,) = pulled(bridge, "prompt")
    assert found.delay_time == 24 * HOUR


def test_messages_that_no_bridge_takes_are_named_and_stop_nothing(out: Path, command: Command, bridge: Bridge) -> None:
    bad = {
        ("r/0", 1): message(1, "not a name"),
        ("r/0", 2): message(2, "r", body=b"x" * (9 << 20)),
        ("r/0", 3): message(3, "r", body=b"no gzip", compression="gzip"),
    }
    make_mirror(out, [Batch({("r/0", 0): message(0, "r"), **bad, ("r/0", 4): message(4, "r")})])
    outcome = command("--json")
    assert outcome.exit_code == 1
    told = json.loads(outcome.stdout)
    assert (told["sent"], told["expired"]) == (2, 0)
    assert [(r["messageId"], r["code"]) for r in told["refused"]] == [
        ("not a name-1", "destination-invalid"),
        ("r-2", "body-too-large"),
        ("r-3", "body-invalid"),
    ]
    assert [m.message_id for m in pulled(bridge, "r")] == ["r-0", "r-4"]
    assert "not a name-1 of not a name: " in command("--to-destination", "not a name").stderr


def test_a_dry_run_sends_nothing(out: Path, command: Command) -> None:
    make_mirror(out, [Batch(some(9) | some(2, "b"))])
    outcome = command("--dry-run", url="http://127.0.0.1:1")
    assert outcome.exit_code == 0
    assert outcome.stdout.splitlines()[:3] == [
        "b: 2 messages, 12 bytes, stored 2025-11-21 12:00:00 to 2025-11-21 12:00:01",
        "orders: 9 messages, 54 bytes, stored 2025-11-21 12:00:00 to 2025-11-21 12:00:08",
        "  b/0/0  b-0  b  6 bytes",
    ]
    assert len(outcome.stdout.splitlines()) == 2 + 5
    told = json.loads(command("--dry-run", "--json").stdout)
    assert [(a["destination"], a["rows"]) for a in told["amount"]] == [("b", 2), ("orders", 9)]
    assert told["first"][0]["log"] == "b/0"


def test_nothing_to_send_and_no_mirror(out: Path, command: Command) -> None:
    assert "There is no mirror in" in command().stderr
    make_mirror(out, [Batch(some(1))])
    outcome = command("--destination", "other")
    assert (outcome.exit_code, outcome.stderr) == (3, "There is nothing to send.\n")


def test_without_its_state_file_nothing_is_sent(out: Path, command: Command, bridge: Bridge, tmp_path: Path) -> None:
    make_mirror(out, [Batch(some(3))])
    state = tmp_path / "missing" / "state.json"
    outcome = command("--state", str(state), "--to-destination", "unsent")
    assert (outcome.exit_code, outcome.stdout) == (1, "0 sent, 0 expired and skipped, 0 refused\n")
    assert outcome.stderr == f"Error: state: {state} cannot be written: No such file or directory.\n"
    assert pulled(bridge, "unsent") == []


@pytest.mark.extended
def test_a_broken_run_goes_on_where_it_was(
    out: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "BATCH_MESSAGES", 10)
    monkeypatch.setattr(sender, "GIVE_UP_AFTER", 0.0)
    make_mirror(out, [Batch(some(55, "s", first=100))])
    path = tmp_path / "state.json"
    arguments = ("--state", str(path), "--destination", "s")
    keep = State.keep
    with Bridge(tmp_path / "first") as first:

        def dying(state: State) -> None:
            keep(state)
            if state.next.get("s/0") == 130:
                first.kill()

        with monkeypatch.context() as patched:
            patched.setattr(State, "keep", dying)
            broken = command(*arguments, url=first.url)
    assert broken.exit_code == 1
    assert broken.stdout == "30 sent, 0 expired and skipped, 0 refused\n"
    assert broken.stderr.startswith("Error: The ")
    with Bridge(tmp_path / "second") as second:
        assert command(*arguments, url=second.url).stdout.startswith("25 sent")
        assert [m.message_id for m in pulled(second, "s")] == [f"s-{n}" for n in range(130, 155)]
        make_mirror(out, [Batch(some(55, "s", first=100)), Batch(some(2, "s", first=155))])
        assert command(*arguments, url=second.url).stdout.startswith("2 sent")
        assert command(*arguments, url=second.url).exit_code == 3
    assert "another restore" in command("--state", str(path), "--destination", "t").stderr


@pytest.mark.extended
def test_an_outage_is_waited_out(out: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge is killed at the second batch and returns at its old address."""
    monkeypatch.setattr(sender, "BATCH_MESSAGES", 10)
    make_mirror(out, [Batch(some(25, "s"))])
    keep = State.keep
    with Bridge(tmp_path / "first") as first:
        back: list[Bridge] = []

        def returning(state: State) -> None:
            keep(state)
            if state.next and not back:
                first.kill()
                starting = {"OMS_LISTEN": first.url.removeprefix("http://")}
                threading.Thread(target=lambda: back.append(Bridge(tmp_path / "back", settings=starting))).start()

        with monkeypatch.context() as patched:
            patched.setattr(State, "keep", returning)
            outcome = command(url=first.url)
    with back[0] as second:
        assert (outcome.exit_code, outcome.stdout) == (0, "25 sent, 0 expired and skipped, 0 refused\n")
        assert [m.message_id for m in pulled(second, "s")] == [f"s-{n}" for n in range(10, 25)]
