"""A registration as `GET /v1/callbacks` shows it: where it stands, and its last failures. No secrets."""

from typing import Any, Final

from bridge.callbacks.courier import Courier
from bridge.callbacks.registration import Failure
from bridge.callbacks.registry import Entry
from bridge.engine.clock import Clock

STATES: Final = ("delivering", "waiting", "paused", "open", "probing", "gone", "refused")


def describe(entry: Entry, kept_in: str, clock: Clock) -> dict[str, Any]:
    """Return its members; times are ms since 1970."""
    registration, history, courier, _ = entry
    return {
        "source": registration.name.source,
        "consumerId": registration.name.group,
        "url": _without_query(registration.url),
        "credit": registration.credit,
        "kept": kept_in,
        **_standing(entry, clock),
        "inFlight": 0 if courier is None else courier.in_flight,
        "delivered": history.delivered,
        "failed": history.failed,
        "failures": [_failure(failure) for failure in history.failures],
    }


def _standing(entry: Entry, clock: Clock) -> dict[str, Any]:
    if entry.refused is not None:
        return {"state": "refused", "why": entry.refused}
    if entry.courier is None or entry.courier.gone:
        return {"state": "gone", "why": "The endpoint has answered 410."}
    return _of_courier(entry.courier, clock)


def _of_courier(courier: Courier, clock: Clock) -> dict[str, Any]:
    mono = clock.mono()
    ahead = clock.wall() - mono
    if courier.paused_until > mono:
        return {"state": "paused", "until": ahead + courier.paused_until, "why": "The endpoint asked for it."}
    if courier.breaker.until > mono:
        return {
            "state": "open",
            "until": ahead + courier.breaker.until,
            "why": "Too many deliveries in a row have failed; one will be tried then.",
        }
    if not courier.breaker.closed:
        return {"state": "probing", "why": "One delivery finds out whether the endpoint is back."}
    if courier.trouble is not None:
        return {"state": "waiting", "why": courier.trouble}
    return {"state": "delivering"}


def _failure(failure: Failure) -> dict[str, Any]:
    members: dict[str, Any] = {
        "time": failure.time,
        "messageId": failure.message_id,
        "attempt": failure.attempt,
        "reason": failure.reason,
    }
    return members if failure.status is None else members | {"status": failure.status}


def _without_query(url: str) -> str:
    """A query may hold a token."""
    place, mark, _ = url.partition("?")
    return f"{place}{mark}***" if mark else place
