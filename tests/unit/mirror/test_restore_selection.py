"""What is sent for a row, what is sent again, and what the state file holds."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from bridge.client import Client, ProduceResult
from bridge.errors import BackendUnavailable, BodyTooLarge, BridgeError, CannotStart, OutcomeUnknown, QuotaExceeded
from bridge.message import Message
from bridge.mirror.restore import Outcome, Row, Sender, State, to_message, to_resend

NOW = 1_000_000
STORED = ProduceResult("id", 1, "host", None, None, {})
BUSY = BackendUnavailable("away")


def sent(message: Message, *, destination: str | None = None, expired: bool = False) -> Message | None:
    return to_message(Row(message, "orders/0", 7), destination=destination, expired=expired, now=NOW)


def test_a_message_keeps_what_its_producer_said_and_says_where_it_comes_from() -> None:
    message = Message(
        "orders",
        b"body",
        {"region": "eu"},
        message_id="m",
        born_timestamp=5,
        partition=3,
        store_timestamp=6,
        store_host="old",
        message_key="k",
        delay_time=100,
        delivery_count=4,
        content_type="text/plain",
    )
    assert sent(message) == message._replace(
        properties={"region": "eu", "oms-restored-from": "orders/0/7"},
        partition=None,
        store_timestamp=None,
        store_host=None,
        delivery_count=None,
    )


def test_a_dead_letter_is_sent_without_its_reason_which_a_bridge_refuses() -> None:
    made = sent(Message("orders.dlq", properties={"oms-dead-letter-reason": "x", "region": "eu"}), destination="orders")
    assert made is not None
    assert made.properties == {"region": "eu", "oms-restored-from": "orders/0/7"}


def test_another_destination() -> None:
    made = sent(Message("orders.dlq"), destination="orders")
    assert made is not None
    assert made.destination == "orders"


def test_what_has_expired_is_left_out_unless_it_is_asked_for() -> None:
    message = Message("orders", born_timestamp=5, expire_time=NOW)
    assert sent(message) is None
    made = sent(message, expired=True)
    assert made is not None
    assert made.expire_time is None
    assert made.properties["oms-restored-expiretime"] == str(NOW)


def test_what_has_not_expired_keeps_its_time() -> None:
    for expire_time in (NOW + 1, 3):  # at or before bornTimestamp: never
        made = sent(Message("orders", born_timestamp=5, expire_time=expire_time), expired=True)
        assert made is not None
        assert made.expire_time == expire_time
        assert "oms-restored-expiretime" not in made.properties


def test_what_may_pass_is_sent_again_and_with_it_what_follows_of_its_key(subtests: pytest.Subtests) -> None:
    cases: list[BridgeError] = [BUSY, OutcomeUnknown("lost"), QuotaExceeded("wait")]
    for error in cases:
        with subtests.test(error=error):
            batch = [Message("d", message_key=key) for key in ("a", "b", "a", None, "b")]
            assert to_resend(batch, [error, STORED, STORED, STORED, STORED]) == [0, 2]


def test_without_a_key_nothing_follows() -> None:
    assert to_resend([Message("d"), Message("d")], [BUSY, STORED]) == [0]


def test_what_is_refused_is_not_sent_again() -> None:
    assert to_resend([Message("d", message_key="a")] * 2, [BodyTooLarge("no"), STORED]) == []


class Taking:
    """A client whose bridge takes everything."""

    async def produce_batch(self, messages: Sequence[Message]) -> list[ProduceResult]:
        return [STORED for _ in messages]


async def test_a_rate_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("bridge.mirror.restore.asyncio.sleep", sleep)
    monkeypatch.setattr("bridge.mirror.restore.time.monotonic", lambda: 7.0)
    outcome = Outcome()
    paced = Sender(cast("Client", Taking()), 20.0, outcome)
    assert paced.batch == 5
    for _ in range(3):
        await paced.send([Message("d")] * 5)
    assert waits == [0, 0.25, 0.5]
    assert (outcome.stored, outcome.refused) == (15, [])
    assert Sender(cast("Client", Taking()), 0.5, outcome).batch == 1


def test_the_state_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state = State(path, {"out": "/m", "destinations": ("a",)})
    state.next["orders/0"] = 5
    state.keep()
    assert State(path, {"out": "/m", "destinations": ("a",)}).next == {"orders/0": 5}


def test_the_state_of_another_restore_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    State(path, {"out": "/m"}).keep()
    with pytest.raises(CannotStart, match="another restore"):
        State(path, {"out": "/other"})


def test_what_is_no_state_is_refused(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for text in ("", "{", "[]", '{"of": {}}', '{"of": {}, "next": {"a": "x"}}'):
        with subtests.test(text=text):
            path = tmp_path / "state.json"
            path.write_text(text)
            with pytest.raises(CannotStart, match="not the state"):
                State(path, {})


def test_without_a_file_nothing_is_kept() -> None:
    state = State(None, {})
    state.next["a"] = 2
    state.keep()
