"""Registrations and messages in flight when the bridge stops, is killed, returns, or returns with other settings."""

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.http.callback_endpoint import (
    OK,
    Answer,
    Endpoint,
    Posted,
    listed,
    produce,
    pull,
    register,
    settled,
    wait_until,
)
from tests.http.conftest import MOSTLY_HYPERCORN
from tests.launch import Bridge


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint().listen()
    yield endpoint
    endpoint.close()


class House:
    """Bridges one after another on one journal."""

    def __init__(self, folder: Path, server: str, endpoint: Endpoint) -> None:
        self.settings = endpoint.settings()
        self._folder = folder
        self._server = server
        self._started = 0

    def bridge(self, **more: str) -> Bridge:
        self._started += 1
        return Bridge(
            self._folder / str(self._started),
            server=self._server,
            backend=f"memory://?journal={self._folder}/journal",
            settings=self.settings | more,
        )


@pytest.fixture
def house(tmp_path: Path, server: str, endpoint: Endpoint) -> House:
    return House(tmp_path, server, endpoint)


@MOSTLY_HYPERCORN
@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_registrations_survive(house: House, endpoint: Endpoint, how: str) -> None:
    with house.bridge() as bridge:
        answer = register(bridge, "orders", endpoint.url("/orders?token=1"), credit=3)
        assert answer.json()["kept"] == "journal"
        register(bridge, "stopped", endpoint.url("/stopped"))
        register(bridge, "stopped", "")
        register(bridge, "moved", endpoint.url("/before"))
        register(bridge, "moved", endpoint.url("/moved"))
        if how == "terminate":
            assert bridge.terminate() == 0
        else:
            bridge.kill()
    with house.bridge() as bridge:
        wait_until(lambda: listed(bridge, "orders"))
        entry = listed(bridge, "orders")
        assert entry is not None
        assert (entry["credit"], entry["kept"], entry["state"]) == (3, "journal", "delivering")
        assert listed(bridge, "stopped") is None
        for name in ("orders", "moved"):
            produce(bridge, name, name.encode())
        endpoint.wait_for("/orders?token=1", 1)
        endpoint.wait_for("/moved", 1)
        assert not endpoint.to("/before")


@MOSTLY_HYPERCORN
def test_gone_is_gone_for_good(house: House, endpoint: Endpoint) -> None:
    endpoint.scripts["/gone"] = lambda _: (410, {})
    with house.bridge() as bridge:
        register(bridge, "orders", endpoint.url("/gone"))
        produce(bridge, "orders", b"x")
        wait_until(lambda: (listed(bridge, "orders") or {})["state"] == "gone")
        assert bridge.terminate() == 0
    with house.bridge() as bridge:
        wait_until(lambda: listed(bridge, "orders"))
        assert (listed(bridge, "orders") or {})["state"] == "gone"
        answer = pull(bridge, "orders", wait=10_000)
        assert answer.headers["x-oms-h-deliverycount"] == "1"
        assert len(endpoint.to("/gone")) == 1


@MOSTLY_HYPERCORN
def test_todays_settings_decide(house: House, endpoint: Endpoint) -> None:
    with house.bridge() as bridge:
        register(bridge, "orders", endpoint.url("/orders"))
        produce(bridge, "orders", b"1")
        endpoint.wait_for("/orders", 1)
        wait_until(settled(bridge, "orders"))
        assert bridge.terminate() == 0
    with house.bridge(OMS_CALLBACKS__TARGETS="https://shop.example") as bridge:
        wait_until(lambda: listed(bridge, "orders"))
        entry = listed(bridge, "orders")
        assert entry is not None
        assert entry["state"] == "refused"
        assert "callbacks.targets does not allow" in entry["why"]
        produce(bridge, "orders", b"2")
        assert bridge.terminate() == 0
    assert len(endpoint.to("/orders")) == 1
    allowed = house.settings
    house.settings = {}
    with house.bridge() as bridge:
        wait_until(lambda: listed(bridge, "orders"))
        assert "callbacks.targets" in (listed(bridge, "orders") or {})["why"]
        assert bridge.terminate() == 0
    house.settings = allowed
    with house.bridge():
        assert [post.body for post in endpoint.wait_for("/orders", 2)] == [b"1", b"2"]


@MOSTLY_HYPERCORN
def test_sigterm_waits_for_what_is_in_flight(house: House, endpoint: Endpoint) -> None:
    arrived, stopping = threading.Semaphore(0), threading.Event()

    def answer_late(post: Posted) -> Answer:
        arrived.release()
        assert stopping.wait(30)
        return OK if post.body == b"good" else (500, {})

    endpoint.scripts["/orders"] = answer_late
    with house.bridge() as bridge:
        for body in (b"good", b"bad"):
            produce(bridge, "orders", body)
        register(bridge, "orders", endpoint.url("/orders"))
        for _ in range(2):
            assert arrived.acquire(timeout=30)
        bridge.begin_to_stop()
        wait_until(lambda: _refuses(bridge))
        stopping.set()
        assert bridge.wait() == 0
    house.settings = {}
    with house.bridge() as bridge:
        answer = pull(bridge, "orders", wait=10_000)
        assert (answer.content, answer.headers["x-oms-h-deliverycount"]) == (b"bad", "1")
        assert pull(bridge, "orders").status_code == 204


@MOSTLY_HYPERCORN
def test_sigterm_waits_no_longer_than_the_drain_may_take(house: House, endpoint: Endpoint) -> None:
    arrived, done = threading.Event(), threading.Event()

    def hang(_: Posted) -> Answer:
        arrived.set()
        done.wait(60)
        return OK

    endpoint.scripts["/orders"] = hang
    try:
        with house.bridge(OMS_DRAIN="500", OMS_CALLBACKS__TIMEOUT="60000") as bridge:
            produce(bridge, "orders", b"x")
            register(bridge, "orders", endpoint.url("/orders"))
            assert arrived.wait(30)
            assert bridge.terminate() == 0
    finally:
        done.set()
    house.settings = {}
    with house.bridge() as bridge:
        assert pull(bridge, "orders", wait=10_000).headers["x-oms-h-deliverycount"] == "1"


@MOSTLY_HYPERCORN
def test_a_backend_that_is_ready_later_than_the_bridge(house: House, endpoint: Endpoint) -> None:
    with house.bridge() as first:
        register(first, "orders", endpoint.url("/orders"))
        with house.bridge() as second:  # the journal is in use, so it is not ready
            refused = register(second, "more", endpoint.url("/more"))
            assert (refused.status_code, refused.json()["code"]) == (503, "backend-unavailable")
            assert listed(second, "orders") is None
            assert first.terminate() == 0
            wait_until(lambda: listed(second, "orders"))
            produce(second, "orders", b"x")
            endpoint.wait_for("/orders", 1)


CHANGES: dict[str, tuple[str, str, int]] = {
    "the destination is purged": ("POST", "/purge", 204),
    "the group is purged": ("POST", "/groups/app/purge", 204),
    "another group is purged": ("POST", "/groups/other/purge", 404),
    "the group is deleted": ("DELETE", "/groups/app", 204),
    "the destination is deleted": ("DELETE", "", 204),
}


def test_a_callback_outlives_purge_and_delete(house: House, endpoint: Endpoint, subtests: pytest.Subtests) -> None:
    with house.bridge() as bridge:
        for number, (what, (method, path, status)) in enumerate(CHANGES.items()):
            with subtests.test(what):
                name = f"orders-{number}"
                register(bridge, name, endpoint.url(f"/{name}"))
                produce(bridge, name, b"one")
                endpoint.wait_for(f"/{name}", 1)
                wait_until(settled(bridge, name))
                for _ in range(2):
                    assert change(bridge, method, f"{name}{path}") in {status, 404}
                produce(bridge, name, b"two")
                wait_until(lambda: b"two" in {post.body for post in endpoint.to(f"/{name}")})  # noqa: B023 - at once
                wait_until(settled(bridge, name))
                assert (listed(bridge, name) or {})["state"] == "delivering"


@MOSTLY_HYPERCORN
def test_a_deleted_destination_stays_deleted_until_it_is_used(house: House, endpoint: Endpoint) -> None:
    """With `latest`, too, the callback gets what is produced before its group exists again."""
    with house.bridge(OMS_DELIVERY__NEW_GROUP="latest") as bridge:
        register(bridge, "orders", endpoint.url("/orders"))
        wait_until(lambda: (listed(bridge, "orders") or {})["state"] == "delivering")
        produce(bridge, "orders", b"one")
        endpoint.wait_for("/orders", 1)
        wait_until(settled(bridge, "orders"))
        assert change(bridge, "DELETE", "orders") == 204
        wait_until(lambda: "There is no destination orders" in (listed(bridge, "orders") or {}).get("why", ""))
        entry = listed(bridge, "orders")
        assert entry is not None
        assert (entry["state"], entry["inFlight"]) == ("waiting", 0)
        assert change(bridge, "DELETE", "orders") == 404, "the callback has not created it again"
        for body in (b"two", b"three"):
            produce(bridge, "orders", body)
        assert {post.body for post in endpoint.wait_for("/orders", 3)} == {b"one", b"two", b"three"}
        wait_until(lambda: (listed(bridge, "orders") or {})["state"] == "delivering")


@MOSTLY_HYPERCORN
def test_a_purge_during_a_post_posts_nothing_that_was_purged(house: House, endpoint: Endpoint) -> None:
    arrived, purged = threading.Event(), threading.Event()

    def answer_late(_: Posted) -> Answer:
        arrived.set()
        assert purged.wait(30)
        return OK

    endpoint.scripts["/orders"] = answer_late
    with house.bridge() as bridge:
        for body in (b"one", b"purged"):
            produce(bridge, "orders", body)
        register(bridge, "orders", endpoint.url("/orders"), credit=1)
        assert arrived.wait(30)
        assert change(bridge, "POST", "orders/purge") == 204
        produce(bridge, "orders", b"two")
        purged.set()
        wait_until(lambda: b"two" in {post.body for post in endpoint.to("/orders")})
        assert [post.body for post in endpoint.to("/orders")] == [b"one", b"two"]


def test_a_callback_outlives_the_closing_of_idle_groups(house: House, endpoint: Endpoint) -> None:
    """While its circuit is open, it has no consumer, and its group is closed."""
    refused: Iterator[Answer] = iter([(500, {})] * 10)
    endpoint.scripts["/orders"] = lambda _: next(refused, OK)
    with house.bridge(OMS_DELIVERY__GROUP_IDLE="1") as bridge:
        for number in range(20):
            produce(bridge, "orders", b"%d" % number)
        register(bridge, "orders", endpoint.url("/orders"))
        wait_until(lambda: len({post.body for post in endpoint.to("/orders")}) == 20 and settled(bridge, "orders")())
        produce(bridge, "orders", b"last")
        wait_until(lambda: b"last" in {post.body for post in endpoint.to("/orders")})


def test_a_start_with_targets_and_no_secret_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"callbacks\.targets needs callbacks\.secrets"):
        Bridge(tmp_path, settings={"OMS_CALLBACKS__TARGETS": "https://shop.example"})


def change(bridge: Bridge, method: str, path: str) -> int:
    """Purge or delete; `path` begins with the destination. Returns the status."""
    url = f"{bridge.management}/v1/destinations/{path}"
    return httpx.request(method, url, trust_env=False, timeout=30).status_code


def _refuses(bridge: Bridge) -> bool:
    """Whether the drain has begun."""
    try:
        return httpx.get(f"{bridge.management}/readyz", trust_env=False, timeout=5).status_code == 503
    except httpx.TransportError:
        return True
