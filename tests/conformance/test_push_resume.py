"""Push streams: going on where a browser stopped, and a bridge that stops."""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from .conversation import Conversation, connection
from .streaming import EVENTS, Push, pushing

if TYPE_CHECKING:
    from tests.launch import Bridge


async def events(push: Push, count: int) -> list[tuple[str, bytes]]:
    """Return the first events of a stream, each with its id."""

    def read() -> list[tuple[str, bytes]]:
        while (text := push.frames.body_of(push.number)).count(b"\ndata: ") < count or not text.endswith(b"\n\n"):
            assert push.frames.grows(push.number, len(text), 20), text
        found = [event.split(b"\n") for event in text.split(b"\n\n") if event.startswith(b"id: ")]
        pairs = [(event[0].removeprefix(b"id: "), event[1].removeprefix(b"data: ")) for event in found]
        return [(event_id.decode(), base64.b64decode(json.loads(data)["data"])) for event_id, data in pairs]

    return await asyncio.to_thread(read)


def after(event_id: str) -> tuple[bytes, bytes]:
    return (b"last-event-id", event_id.encode())


@pytest.mark.wire
async def test_without_ack_what_was_sent_after_the_last_event_is_sent_again(talk: Conversation) -> None:
    """
    > Many messages on one response, with the pull headers
    """
    for number in range(4):
        await talk.produce(b"%d" % number, messagekey="k")
    async with pushing(talk, EVENTS, ack="false") as push:
        sent = await events(push, 4)
        assert [body for _, body in sent] == [b"0", b"1", b"2", b"3"]
        for _ in range(2):  # the answer to the first return may be lost, too
            async with pushing(talk, EVENTS, after(sent[1][0]), ack="false") as successor:
                assert await events(successor, 2) == sent[2:]
        assert (await push.answer()).ended != "complete", "the stream that was continued is broken off"
    async with pushing(talk, EVENTS, after(sent[1][0]), ack="false") as successor:
        await events(successor, 2)
        await talk.produce(b"4", messagekey="k")
        assert [body for _, body in await events(successor, 3)] == [b"2", b"3", b"4"]
    await talk.nothing()


@pytest.mark.wire
async def test_under_ack_a_stream_that_is_continued_ends_and_what_it_held_comes_again(talk: Conversation) -> None:
    """
    > when it ends, what was not acknowledged goes back at once.
    """
    for number in range(2):
        await talk.produce(b"%d" % number)
    async with pushing(talk, EVENTS, leasemills=900_000) as push:
        sent = await events(push, 2)
        async with pushing(talk, EVENTS, after(sent[0][0]), leasemills=900_000) as successor:
            again = await events(successor, 2)
            assert (await push.answer()).ended != "complete"
    assert {body for _, body in again} == {b"0", b"1"}


@pytest.mark.wire
async def test_an_unknown_event_id_is_ignored(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > Many messages on one response, with the pull headers
    """
    for event_id in ("", "-", "guessed", "0123456789abcdef-1", "\xb2", "9" * 5000):
        with subtests.test(repr(event_id[:30])):
            await talk.produce(b"here")
            given = (b"last-event-id", event_id.encode("latin-1"))
            async with pushing(talk, EVENTS, given, ack="false", maxmessages=1) as push:
                assert [body for _, body in await events(push, 1)] == [b"here"]


@pytest.mark.wire
async def test_an_event_id_of_another_group_is_ignored(talk: Conversation) -> None:
    """
    > Every group sees every message of a destination once, plus redeliveries.
    """
    await talk.produce(b"here")
    async with pushing(talk, EVENTS, ack="false") as push:
        ((event_id, _),) = await events(push, 1)
        nothing_seen = event_id.rpartition("-")[0] + "-0"
        async with pushing(talk, EVENTS, after(nothing_seen), ack="false", source=f"{talk.destination}-2") as other:
            assert (await other.head()).status == 200
            await talk.produce(b"more")
            assert len(await events(push, 2)) == 2
            assert await asyncio.to_thread(other.frames.body_of, other.number) in {b"", b"retry: 1000\n\n"}


@pytest.mark.slow_on_brokers
async def test_streams_end_cleanly_when_the_bridge_stops_and_nothing_is_counted(
    launch: Callable[..., "Bridge"],
) -> None:
    """
    > → streams end cleanly

    > → leases released without counting as a failure

    > → producer flushed → exit 0, inside the grace period.
    """
    bridge = launch()
    async with connection(bridge.url) as http:
        talk = Conversation(http)
        durable = (await http.get("/v1/capabilities")).json()["durable"]
        await talk.produce(b"leased")
        async with (
            pushing(talk, leasemills=900_000, credit=1) as busy,
            pushing(talk, consumerid="idle") as idle,
            pushing(talk, "text/event-stream", consumerid="events") as page,
            pushing(talk, "multipart/mixed", consumerid="parts") as parts,
        ):
            assert (await busy.take()).count == 1
            await idle.take()
            for each in (page, parts):
                assert (await each.head()).status == 200
            bridge.begin_to_stop()
            assert await busy.end() == {"end": "draining"}
            assert await idle.end() == {"end": "draining"}
            assert (await page.answer()).ended == "complete"
            assert (await page.answer()).body.endswith(b'event: end\ndata: {"end":"draining"}\n\n')
            assert (await parts.answer()).ended == "complete"
            assert (await parts.answer()).body.endswith(b"--\r\n")
    assert await asyncio.to_thread(bridge.wait) == 0
    if durable:
        async with connection(launch().url) as http:
            talk.http = http
            again = await talk.take()
            assert (again.body, again.count) == (b"leased", 1)
            assert (await talk.take(consumerid="idle")).count == 1
