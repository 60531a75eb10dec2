"""Prints all that a bridge finds in a journal, over HTTP, at the time at which the journal was written and later."""

import base64
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from tests.http.wall import HOUR, WallClock
from tests.launch import Bridge

GROUPS: Final = ("billing", "shipping", "newcomer")
"""The last one comes only when the journal is read."""
DESTINATIONS: Final = ("orders", "orders.dlq", "full", "later")
DELAYED: Final = "later"
"""The destination of which one message is due within an hour, and one within a year."""
LONG: Final = 36_500 * 24 * HOUR
"""A retention that outlasts every golden journal, ms."""
YEAR: Final = 365 * 24 * HOUR
_WAIT: Final = 300
"""How long a pull waits for one more message, ms; those that are there come at once."""
_UNTIL_DUE: Final = 60_000
"""How long a pull waits for the one that is due, ms: a bridge looks at its clock now and then."""
_CHANGING: Final = ("x-oms-receipt", "x-oms-leaseuntil", "date", "server", "content-length", "cache-control")
"""Headers of an answer that say nothing about the message."""


def backend(journal: Path) -> str:
    """Return the URL of a backend with that journal."""
    return f"memory://?journal={journal}&partitions=2&max_messages=40&retention={LONG}"


def observe(directory: Path, journal: Path, made: int) -> dict[str, Any]:
    """Start a bridge on a journal as if it were `made`, ms since 1970, take everything in it, and return it.

    An hour later what was delayed for less is there, and a year later the rest.
    """
    clock = WallClock(directory / "wall-clock")
    clock.move(made - time.time_ns() // 1_000_000)
    with Bridge(directory, backend=backend(journal), settings=clock.settings) as bridge:
        found: dict[str, Any] = {
            "logs": _get(bridge, "/v1/logs")["logs"],
            "callbacks": [
                {name: entry[name] for name in ("source", "consumerId", "url", "credit")}
                for entry in _get(bridge, "/v1/callbacks")
            ],
            "at first": _everything(bridge),
        }
        for when, ahead in (("an hour later", HOUR), ("a year later", YEAR)):
            clock.move(ahead)
            with _consumer(bridge, DELAYED, "witness") as http:
                assert len(_taken(http, _UNTIL_DUE, most=1)) == 1
            found[when] = _everything(bridge)
        assert bridge.terminate() == 0
    return found


def name_of(message: Mapping[str, str]) -> str:
    """Return a message's id as it travels."""
    return message.get("x-oms-h-messageid") or message["x-oms-h-messageid*"]


def _everything(bridge: Bridge) -> dict[str, list[dict[str, str]]]:
    """Take and acknowledge what each group is given, in the order of the messages' ids."""
    return {f"{source}/{group}": _of(bridge, source, group) for source in DESTINATIONS for group in GROUPS}


def _of(bridge: Bridge, source: str, group: str) -> list[dict[str, str]]:
    with _consumer(bridge, source, group) as http:
        return sorted(_taken(http, _WAIT), key=name_of)


def _consumer(bridge: Bridge, source: str, group: str) -> httpx.Client:
    asked = {"x-oms-version": "1.0.0", "x-oms-source": source, "x-oms-consumerid": group, "x-oms-ack": "true"}
    return httpx.Client(base_url=bridge.url, trust_env=False, timeout=90, headers=asked)


def _taken(http: httpx.Client, wait: int, most: int = 1_000) -> list[dict[str, str]]:
    messages: list[dict[str, str]] = []
    while len(messages) < most:
        answer = http.get("/v1/messages", headers={"x-oms-waitmills": str(wait)})
        if answer.status_code == 204:
            break
        assert answer.status_code == 200, answer.text
        headers = {name: value for name, value in answer.headers.items() if name not in _CHANGING}
        messages.append({**headers, "body": base64.b64encode(answer.content).decode("ascii")})
        settled = http.post("/v1/ack", headers={"x-oms-receipt": answer.headers["x-oms-receipt"]})
        assert settled.status_code == 204, settled.text
    return messages


def _get(bridge: Bridge, path: str) -> Any:  # noqa: ANN401 - a document
    answer = httpx.get(bridge.url + path, headers={"x-oms-version": "1.0.0"}, trust_env=False, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()
