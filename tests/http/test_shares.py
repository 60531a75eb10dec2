"""One client address cannot use up what all clients share: on a running bridge, with clients of several addresses."""

from collections.abc import Iterator

import httpx
import pytest

from tests.http.asking import fresh
from tests.http.conftest import Start
from tests.launch import Bridge

LIMITS = {f"OMS_LIMITS__{name}": "6" for name in ("DESTINATIONS", "GROUPS", "DELAYED")}
LIMITS["OMS_LIMITS__CLIENT_SHARE"] = "50"
HEADERS = {"x-oms-version": "1.0.0"}


@pytest.fixture
def bridge(start: Start) -> Bridge:
    """Return a bridge on which each client may have three of everything."""
    return start(**LIMITS)


def connect(bridge: Bridge, address: str) -> httpx.Client:
    transport = httpx.HTTPTransport(local_address=address)
    return httpx.Client(base_url=bridge.url, transport=transport, headers=HEADERS, timeout=20)


@pytest.fixture
def clients(bridge: Bridge) -> Iterator[list[httpx.Client]]:
    """Connect from two addresses that have shares."""
    with connect(bridge, "127.0.0.2") as first, connect(bridge, "127.0.0.3") as second:
        yield [first, second]


def produce(client: httpx.Client, destination: str, **fields: str) -> httpx.Response:
    headers = {"x-oms-h-destination": destination} | {f"x-oms-h-{name}": value for name, value in fields.items()}
    return client.post("/v1/messages", headers=headers)


def codes(answers: list[httpx.Response]) -> list[object]:
    return [answer.json()["code"] if answer.is_error else answer.status_code for answer in answers]


def test_each_address_has_its_share(bridge: Bridge, clients: list[httpx.Client]) -> None:
    first, second = clients
    names = [fresh().decode() for _ in range(3)]
    refused = "limit-reached"
    assert codes([produce(first, name) for name in [*names, "one-more"]]) == [200, 200, 200, refused]
    late = [produce(first, names[0], delaytime="60000") for _ in range(4)]
    assert codes(late) == [200, 200, 200, refused]
    assert late[-1].headers["retry-after"] == "5"

    def pull(client: httpx.Client, group: str) -> httpx.Response:
        asked = {"x-oms-source": names[0], "x-oms-consumerid": group, "x-oms-ack": "true"}
        return client.get("/v1/messages", headers=asked)

    assert codes([pull(first, group) for group in "abcda"]) == [200, 200, 200, refused, 204]
    assert codes([produce(second, fresh().decode()), pull(second, "d")]) == [200, 200]
    assert produce(second, names[0], delaytime="60000").status_code == 200
    assert httpx.delete(f"{bridge.management}/v1/destinations/{names[0]}", trust_env=False).status_code == 204
    assert codes([produce(first, fresh().decode()), pull(first, "new")]) == [200, refused]
    assert produce(first, names[1], delaytime="60000").status_code == 200, "what was deleted counts no more"
    metrics = httpx.get(f"{bridge.management}/metrics", trust_env=False).text
    assert 'oms_refusals_total{code="limit-reached"}' in metrics


def test_localhost_may_use_the_whole_limit(start: Start) -> None:
    bridge = start(OMS_LIMITS__DESTINATIONS="6")
    with connect(bridge, "127.0.0.1") as local, connect(bridge, "127.0.0.2") as other:
        answers = [produce(client, fresh().decode()) for client in (*[local] * 7, other)]
    assert codes(answers) == [200] * 6 + ["backend-full"] * 2
