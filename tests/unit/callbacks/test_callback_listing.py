"""What `GET /v1/callbacks` shows of a registration, state by state."""

from types import SimpleNamespace
from typing import Any

import pytest

from bridge.callbacks.registration import (
    DeliveryFailure,
    DeliveryHistory,
    Registration,
    decode_registration,
    metadata_key,
)
from bridge.callbacks.registry import STATES, CallbackEntry, describe
from bridge.callbacks.retry_policy import FAILURE_THRESHOLD, CircuitBreaker
from bridge.engine.destination_names import SubscriptionKey

ORDERS = Registration(SubscriptionKey("orders", "app"), "https://shop.example/hook?token=secret", 4)
MONO, WALL = 5_000, 1_700_000_000_000


class Clock:
    """Stands still."""

    def mono(self) -> int:
        return MONO

    def wall(self) -> int:
        return WALL


def worker(**changes: object) -> Any:  # noqa: ANN401 - stands for a worker
    return SimpleNamespace(
        **{"gone": False, "paused_until": 0, "breaker": CircuitBreaker(), "last_error": None, "in_flight": 2} | changes
    )


def opened(until: int) -> CircuitBreaker:
    breaker = CircuitBreaker()
    for _ in range(FAILURE_THRESHOLD):
        breaker.fail(0, 0.5)
    breaker.until = until
    return breaker


def standing(delivering: Any, refused: str | None = None) -> dict[str, Any]:  # noqa: ANN401 - as above
    shown = describe(CallbackEntry(ORDERS, DeliveryHistory(), delivering, refused), "journal", Clock())
    return {name: shown[name] for name in ("state", "until", "why") if name in shown}


def test_all_members_and_nothing_of_a_query() -> None:
    history = DeliveryHistory()
    history.delivered, history.failed = 7, 2
    history.failures.append(DeliveryFailure(17, "m-1", 3, 500, "it said 500"))
    history.failures.append(DeliveryFailure(18, "m-2", 1, None, "no answer"))
    assert describe(CallbackEntry(ORDERS, history, worker(), None), "journal", Clock()) == {
        "source": "orders",
        "consumerId": "app",
        "url": "https://shop.example/hook?***",
        "credit": 4,
        "kept": "journal",
        "state": "delivering",
        "inFlight": 2,
        "delivered": 7,
        "failed": 2,
        "failures": [
            {"time": 17, "messageId": "m-1", "attempt": 3, "reason": "it said 500", "status": 500},
            {"time": 18, "messageId": "m-2", "attempt": 1, "reason": "no answer"},
        ],
    }
    plain = ORDERS._replace(url="https://shop.example/hook")
    shown = describe(CallbackEntry(plain, DeliveryHistory(), None, "why"), "memory", Clock())
    assert (shown["url"], shown["inFlight"], shown["kept"]) == ("https://shop.example/hook", 0, "memory")


def test_the_first_state_that_applies_is_shown() -> None:
    ahead = WALL - MONO
    paused = {"state": "paused", "until": ahead + 6_000, "why": "The endpoint asked for a pause (retry-after)."}
    opening = {
        "state": "open",
        "until": ahead + 5_001,
        "why": "Too many deliveries in a row have failed; one message is tried next.",
    }
    probing = {"state": "probing", "why": "One message tests whether the endpoint is back."}
    gone = {"state": "gone", "why": "The endpoint has answered 410."}
    assert standing(worker()) == {"state": "delivering"}
    assert standing(worker(last_error="The broker is away.")) == {"state": "waiting", "why": "The broker is away."}
    assert standing(worker(breaker=opened(MONO), last_error="too")) == probing
    assert standing(worker(breaker=opened(MONO + 1))) == opening
    assert standing(worker(breaker=opened(MONO + 1), paused_until=6_000)) == paused
    assert standing(worker(breaker=opened(MONO + 1), paused_until=MONO)) == opening
    assert standing(worker(gone=True, paused_until=6_000)) == gone
    assert standing(None) == gone
    refused = {"state": "refused", "why": "not allowed"}
    assert standing(worker(gone=True), "not allowed") == refused
    shown = (paused, opening, probing, gone, refused, {"state": "delivering"}, {"state": "waiting"})
    assert {each["state"] for each in shown} == set(STATES)


def test_a_registration_is_read_as_it_was_kept() -> None:
    for kept in (ORDERS, ORDERS._replace(gone=True)):
        assert metadata_key(kept.subscription) == "callback/orders/app"
        assert decode_registration(metadata_key(kept.subscription), kept.encode()) == kept
    assert decode_registration("other/orders/app", ORDERS.encode()) is None
    for member in ("url", "credit", "gone"):
        text = ORDERS.encode().replace(f'"{member}"', '"else"')
        with pytest.raises(ValueError, match=f"the metadata of callback/orders/app lacks '{member}'"):
            decode_registration("callback/orders/app", text)
    with pytest.raises(ValueError, match="the metadata of callback/orders/app lacks"):
        decode_registration("callback/orders/app", "[]")
