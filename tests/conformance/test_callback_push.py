"""Callbacks: who gets messages posted, in which form, and what the answers do."""

import asyncio
import base64
import hmac
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import pytest_asyncio

from .conversation import Conversation, connection, now, refused
from .endpoint import SECRET, Answer, Endpoint, Listener, Posted
from .places import Place

if TYPE_CHECKING:
    from tests.launch import Bridge

pytestmark = pytest.mark.slow_on_brokers


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    with Listener() as listener:
        yield listener


@pytest.fixture
def endpoint(listener: Listener) -> Endpoint:
    return listener.endpoint()


@pytest.fixture(scope="module")
def caller(
    start: Callable[..., "Bridge"], listener: Listener, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Place], "Bridge"]]:
    """Start at each place one bridge that may call the endpoints, and gives up after three deliveries."""
    settings = {"OMS_DELIVERY__MAX_DELIVERIES": "3", **listener.settings}
    bridges: dict[Place, Bridge] = {}

    def caller_at(place: Place) -> "Bridge":
        if place not in bridges:
            bridges[place] = start(tmp_path_factory.mktemp("caller"), place, settings)
        return bridges[place]

    yield caller_at
    for bridge in bridges.values():
        bridge.__exit__(None, None, None)


@pytest_asyncio.fixture
async def calling(place: Place, caller: Callable[[Place], "Bridge"]) -> AsyncIterator[Conversation]:
    """Talk to the bridge that may call the endpoints."""
    if place.url is not None:
        pytest.skip("the test starts and stops its own bridges")
    async with connection(caller(place).url) as http:
        yield Conversation(http)


async def register(talk: Conversation, url: str) -> httpx.Response:
    params = {"version": "1.0.0", "source": talk.destination, "consumerid": talk.group, "callbackurl": url}
    return await talk.http.post("/v1/push", headers={f"x-oms-{name}": value for name, value in params.items()})


async def listed(talk: Conversation) -> dict[str, Any] | None:
    callbacks = (await talk.http.get("/v1/callbacks")).json()
    return next((each for each in callbacks if each["source"] == talk.destination), None)


async def until(talk: Conversation, **members: object) -> None:
    """Wait until the registration says so."""
    deadline = time.monotonic() + 20
    while (found := await listed(talk)) is None or any(found[name] != value for name, value in members.items()):
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.05)


async def arrived(endpoint: Endpoint, count: int) -> list[Posted]:
    return await asyncio.to_thread(endpoint.wait_for, count)


def first(*answers: Answer) -> Callable[[Posted], Answer]:
    """Answer so at first, and with 200 from then on."""
    rest = list(answers)
    return lambda _: rest.pop(0) if rest else (200, {})


@pytest.mark.wire
async def test_callbacks_are_off_until_somebody_allows_them(talk: Conversation) -> None:
    """
    > Off until the configuration lists the allowed targets;
    """
    if await listed(talk) is not None or (await register(talk, "")).status_code != 204:
        pytest.skip("the bridge has callbacks")
    answer = await register(talk, "http://127.0.0.1:9/never")
    refused(answer, 403, "callback-refused")


@pytest.mark.wire
async def test_only_what_is_listed_may_be_called(calling: Conversation, endpoint: Endpoint) -> None:
    """
    > Off until the configuration lists the allowed targets;
    """
    for url in ("http://127.0.0.1:9/", "https://elsewhere.example/", endpoint.target.replace("127.0.0.1", "127.0.0.2")):
        refused(await register(calling, url), 403, "callback-refused")
    assert await listed(calling) is None


@pytest.mark.wire
async def test_a_message_is_posted_in_the_produce_form_and_signed(calling: Conversation, endpoint: Endpoint) -> None:
    """
    > Registers (source, consumerId) → URL;

    > The bridge POSTs each message in the produce form;

    > Signed as Standard Webhooks says (`webhook-id`, `-timestamp`, `-signature`).
    """
    assert (await register(calling, f"{endpoint.target}/orders")).status_code == 201
    assert (await register(calling, f"{endpoint.target}/orders")).status_code == 200
    await calling.produce(b"\0body", [("x-oms-p-%4frder%49d", "7")], messageid="m-1", correlationid="c")
    ((headers, body),) = await arrived(endpoint, 1)
    assert body == b"\0body"
    assert headers["x-oms-h-destination"] == calling.destination
    assert (headers["x-oms-h-correlationid"], headers["x-oms-p-%4frder%49d"]) == ("c", "7")
    assert (headers["x-oms-h-deliverycount"], headers["webhook-id"]) == ("1", "m-1")
    assert abs(int(headers["webhook-timestamp"]) - now() // 1000) < 60
    signed = f"m-1.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.digest(base64.b64decode(SECRET.removeprefix("whsec_")), signed, "sha256")
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


async def test_a_2xx_acknowledges(calling: Conversation, endpoint: Endpoint) -> None:
    """
    > 2xx acknowledges,

    > `GET /v1/callbacks` lists them.
    """
    endpoint.script = first((202, {}), (204, {}))
    await register(calling, endpoint.target)
    for number in range(3):
        await calling.produce(b"%d" % number)
    assert {posted.body for posted in await arrived(endpoint, 3)} == {b"0", b"1", b"2"}
    await until(calling, delivered=3, inFlight=0, state="delivering", consumerId=calling.group)
    await register(calling, "")
    await calling.nothing()


@pytest.mark.wire
async def test_an_empty_url_stops_it_and_loses_nothing(calling: Conversation, endpoint: Endpoint) -> None:
    """
    > an empty value stops it;
    """
    await register(calling, endpoint.target)
    assert (await register(calling, "")).status_code == 204
    assert await listed(calling) is None
    await calling.produce(b"pulled")
    taken = await calling.take()
    assert (taken.body, taken.count) == (b"pulled", 1)
    assert endpoint.posts == []


async def test_410_stops_it_and_loses_nothing(calling: Conversation, endpoint: Endpoint) -> None:
    """
    > 410 stops the callback,
    """
    endpoint.script = first((410, {}))
    await register(calling, endpoint.target)
    await calling.produce(b"unwanted")
    await until(calling, state="gone")
    assert (await calling.take()).body == b"unwanted"
    assert len(endpoint.posts) == 1


async def test_retry_after_slows_it_down_without_counting(calling: Conversation, endpoint: Endpoint) -> None:
    """
    > 429/503 with `retry-after` slow it down,
    """
    at: list[float] = []
    answers = first((429, {"retry-after": "1"}), (503, {"retry-after": "1"}))

    def note(posted: Posted) -> Answer:
        at.append(time.monotonic())
        return answers(posted)

    endpoint.script = note
    await register(calling, endpoint.target)
    await calling.produce(b"later")
    posts = await arrived(endpoint, 3)
    assert [posted.headers["x-oms-h-deliverycount"] for posted in posts] == ["1"] * 3
    assert at[1] - at[0] > 0.95
    assert at[2] - at[1] > 0.95


async def test_anything_else_is_tried_again_and_becomes_a_dead_letter(
    calling: Conversation, listener: Listener, subtests: pytest.Subtests
) -> None:
    """
    > anything else retries with exponential backoff and jitter, then dead letter.
    """
    talks = {status: (Conversation(calling.http), listener.endpoint()) for status in (302, 400, 500)}
    for status, (talk, endpoint) in talks.items():
        endpoint.script = first(*[(status, {"location": f"{endpoint.target}/elsewhere"})] * 9)
        await register(talk, endpoint.target)
        await talk.produce(b"poison")
    for status, (talk, endpoint) in talks.items():
        with subtests.test(str(status)):
            posts = await arrived(endpoint, 3)
            assert [posted.headers["x-oms-h-deliverycount"] for posted in posts] == ["1", "2", "3"]
            assert {posted.headers["webhook-id"] for posted in posts} == {posts[0].headers["webhook-id"]}
            assert (await talk.take(source=f"{talk.destination}.dlq")).body == b"poison"
            assert len(endpoint.posts) == 3
