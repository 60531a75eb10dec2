"""One POST and its answer, by endpoints that do what they please."""

import asyncio
import socket
import struct

import pytest

from bridge import __version__
from bridge.callbacks import connection
from bridge.callbacks.callback_sender import CONCURRENCY_PER_ORIGIN
from bridge.callbacks.connection import EndpointConnection
from bridge.callbacks.retry_policy import EndpointResponse, NoResponse, RequestBlocked, RequestFailed
from tests.security.endpoint import LONG, OK, Connected, Received, Script, Trap, listening, obliging, outlet, several

SOON = 300
"""A timeout, ms, that a test waits out."""
PLANTED = b"HTTP/1.1 299 Planted\r\ncontent-length: 0\r\n\r\n"


@pytest.fixture(autouse=True)
def _no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends a connection here is what the test is about, not its age."""
    monkeypatch.setattr("bridge.callbacks.callback_sender.IDLE_SECONDS", 3600)


def saying(*parts: bytes) -> Script:
    """Answer the first request with these bytes, then close."""

    async def script(connected: Connected) -> None:
        await connected.receive()
        await connected.send(b"".join(parts))

    return script


async def silent(connected: Connected) -> bool:
    await connected.receive()
    return await connected.is_left()


async def test_a_post_arrives_as_it_was_given() -> None:
    seen: list[Received] = []

    async def looking(connected: Connected) -> None:
        while True:
            seen.append(await connected.receive())
            await connected.send(OK)

    body = bytes(range(256)) * 400
    pairs = [(b"x-oms-version", b"1.0.0"), (b"x-oms-p-a%20b", b"c"), (b"content-type", b"application/json")]
    async with listening(looking) as endpoint, outlet(endpoint.url) as egress:
        for path in ("/hook/%41?a=b&c=d", "/hook/%41?a=b&c=d"):
            assert await egress.post(endpoint.url + path, pairs, body) == EndpointResponse(200, None)
    for one in seen:
        assert one.line == "POST /hook/%41?a=b&c=d HTTP/1.1"
        assert one.body == body
        assert one.headers == [
            ("host", f"127.0.0.1:{endpoint.port}"),
            ("user-agent", f"openmessaging-bridge/{__version__}"),
            ("accept-encoding", "identity"),
            ("x-oms-version", "1.0.0"),
            ("x-oms-p-a%20b", "c"),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
        ]
    assert (len(seen), endpoint.connections) == (2, 1)


async def test_an_empty_body_has_its_length() -> None:
    async with listening() as endpoint, outlet(endpoint.url) as egress:
        assert (await egress.post(endpoint.url, [], b"")).status == 200


ANSWERS = (
    (b"HTTP/1.1 204 No Content\r\n\r\n", EndpointResponse(204, None)),
    (b"HTTP/1.1 429 Slow\r\nRetry-After: 120\r\ncontent-length: 0\r\n\r\n", EndpointResponse(429, "120")),
    (b"HTTP/1.1 503 \r\nretry-after: Fri, 31 Dec 2027 23:59:59 GMT\r\ncontent-length: 0\r\n\r\n",
     EndpointResponse(503, "Fri, 31 Dec 2027 23:59:59 GMT")),
    (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", EndpointResponse(200, None)),
    (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", EndpointResponse(200, None)),
    (b"HTTP/1.0 410 Gone\r\n\r\n", EndpointResponse(410, None)),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\n\r\n" + OK, EndpointResponse(200, None)),
    (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nnone", EndpointResponse(200, None)),
    (b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok", EndpointResponse(200, None)),
    (b"HTTP/1.1 200 OK\r\nContent-Type: Application/JSON ; a=b\r\ncontent-length: 2\r\n\r\n[]",
     EndpointResponse(200, None, b"[]")),
    (b"HTTP/1.1 200 OK\r\ncontent-type: application/problem+json\r\ncontent-length: 2\r\n\r\n[]",
     EndpointResponse(200, None)),
    (b"HTTP/1.1 103 Early\r\nretry-after: 9\r\ncontent-type: application/json\r\n\r\n" + OK,
     EndpointResponse(200, None)),
)  # fmt: skip


async def test_every_framing_of_an_answer_is_read(subtests: pytest.Subtests) -> None:
    for answer, expected in ANSWERS:
        with subtests.test(repr(answer[:60])):
            async with listening(saying(answer)) as endpoint, outlet(endpoint.url) as egress:
                assert await egress.post(endpoint.url, [], b"x") == expected


BROKEN = (
    b"",
    b"HTTP/1.1 200",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhal",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnot hex\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\n",
    b"HTTP/1.1 103 Early\r\n\r\n" * 10_000 + OK,
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"\x16\x03\x01",
    b"\0" * 70_000,
)


async def test_what_is_no_whole_answer_is_unreachable(subtests: pytest.Subtests) -> None:
    for answer in BROKEN:
        with subtests.test(repr(answer[:60])):
            async with listening(saying(answer)) as endpoint, outlet(endpoint.url) as egress:
                with pytest.raises(NoResponse):
                    await egress.post(endpoint.url, [], b"x")
                assert endpoint.connections == 1


async def test_nobody_listens() -> None:
    async with listening() as endpoint:
        pass
    async with outlet(endpoint.url) as egress:
        with pytest.raises(NoResponse, match="no connection to"):
            await egress.post(endpoint.url, [], b"x")


async def dripping(connected: Connected) -> bool:
    await connected.receive()
    left = asyncio.create_task(connected.is_left())
    connected.writer.write(b"HTTP/1.1 200 OK\r\nx: ")
    while not left.done():
        connected.writer.write(b"y")
        await asyncio.sleep(0.01)
    return left.result()


@pytest.mark.parametrize("script", [silent, dripping])
async def test_a_slow_endpoint_is_left_at_the_timeout(script: Script) -> None:
    async with listening(script) as endpoint, outlet(endpoint.url, milliseconds=SOON) as egress:
        with pytest.raises(NoResponse, match=r"within 0\.3 s"):
            await egress.post(endpoint.url, [], b"x")
        assert await asyncio.wait_for(endpoint.ended.get(), 10) is True


async def test_an_endless_answer_costs_64_kib_and_the_connection() -> None:
    async def endless(connected: Connected) -> int:
        await connected.receive()
        await connected.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n")
        sent = 0
        try:
            while True:
                await connected.send(b"x" * 65536)
                sent += 65536
        except ConnectionError:
            return sent

    async with listening(endless) as endpoint, outlet(endpoint.url) as egress:
        for number in (1, 2):
            assert await egress.post(endpoint.url, [], b"x") == EndpointResponse(200, None)
            assert endpoint.connections == number
            sent = await asyncio.wait_for(endpoint.ended.get(), 10)
            assert isinstance(sent, int)
            assert sent < 32 << 20  # what the buffers of both kernels took


@pytest.mark.parametrize(("size", "connections"), [(60_000, 1), (65_536, 2)])
async def test_a_long_answer_is_read_and_a_longer_one_costs_the_connection(size: int, connections: int) -> None:
    async def talkative(connected: Connected) -> None:
        while True:
            await connected.receive()
            await connected.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size)

    async with listening(talkative) as endpoint, outlet(endpoint.url) as egress:
        for _ in range(2):
            assert (await egress.post(endpoint.url, [], b"x")).status == 200
        assert endpoint.connections == connections


async def test_of_a_longer_json_body_64_kib_are_kept() -> None:
    body = b"[" + b" " * 100_000 + b"]"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    async with listening(saying(head, body)) as endpoint, outlet(endpoint.url) as egress:
        response = await egress.post(endpoint.url, [], b"x")
        assert response.json == body[: connection.RESPONSE_MAX - len(head)]


async def test_the_connection_that_was_used_last_is_used_next() -> None:
    """So that the others close when a burst is over."""
    used: list[int] = []

    async def numbered(connected: Connected) -> None:
        number = endpoint.connections
        while True:
            await connected.receive()
            used.append(number)
            await asyncio.sleep(0.05 * number)  # the last one to answer is the second one
            await connected.send(OK)

    async with listening(numbered) as endpoint, outlet(endpoint.url) as egress:
        await asyncio.gather(*(egress.post(endpoint.url, [], b"x") for _ in range(2)))
        for _ in range(3):
            await egress.post(endpoint.url, [], b"x")
        assert sorted(used[:2]) == [1, 2]
        assert used[2:] == [2, 2, 2]


async def counted(connected: Connected) -> int:
    """Read to the end."""
    received = 0
    try:
        while data := await connected.reader.read(65536):
            received += len(data)
    except ConnectionError:
        pass
    return received


async def test_an_early_answer_ends_the_upload() -> None:
    async def early(connected: Connected) -> int:
        await connected.reader.readuntil(b"\r\n\r\n")
        await connected.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await asyncio.wait_for(answered.wait(), 10)
        return await counted(connected)

    answered = asyncio.Event()
    async with listening(early) as endpoint, outlet(endpoint.url) as egress:
        assert (await egress.post(endpoint.url, [], bytes(64 << 20))).status == 413
        answered.set()
        received = await asyncio.wait_for(endpoint.ended.get(), 10)
        assert isinstance(received, int)
        assert received < 32 << 20  # what the buffers of both kernels took


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1, 4 << 20])
async def test_a_long_body_arrives_whole(size: int) -> None:
    seen: list[Received] = []

    async def looking(connected: Connected) -> None:
        seen.append(await connected.receive())
        await connected.send(OK)

    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    async with listening(looking) as endpoint, outlet(endpoint.url) as egress:
        assert (await egress.post(endpoint.url, [], body)).status == 200
    assert seen[0].body == body
    assert "transfer-encoding" not in dict(seen[0].headers)


@pytest.mark.parametrize("reset", [False, True])
async def test_a_connection_that_the_endpoint_closed_meanwhile_is_not_used(*, reset: bool) -> None:
    async def once(connected: Connected) -> str:
        await connected.receive()
        await connected.send(OK)
        if reset:
            linger = struct.pack("ii", 1, 0)
            connected.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        return "closed"

    async with listening(once) as endpoint, listening(saying(OK)) as other, outlet(endpoint.url) as egress:
        for number in (1, 2, 3):
            assert (await egress.post(endpoint.url, [], b"x")).status == 200
            assert await asyncio.wait_for(endpoint.ended.get(), 10) == "closed"
            assert endpoint.connections == number
            await heard_of_the_end(other.port)


async def heard_of_the_end(port: int) -> None:
    """Let the loop hear that a connection has ended: when one opened after that is answered and closed, it has."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
    await reader.read()
    writer.close()


async def test_a_post_that_meets_a_closing_connection_is_not_sent_again() -> None:
    seen: list[bytes] = []

    async def twice(connected: Connected) -> None:
        seen.append((await connected.receive()).body)
        await connected.send(OK)
        seen.append((await connected.receive()).body)

    async with listening(twice) as endpoint, outlet(endpoint.url) as egress:
        assert (await egress.post(endpoint.url, [], b"one")).status == 200
        with pytest.raises(NoResponse, match="closed the connection without a response"):
            await egress.post(endpoint.url, [], b"two")
        assert seen == [b"one", b"two"]
        assert (await egress.post(endpoint.url, [], b"three")).status == 200
        assert (seen, endpoint.connections) == ([b"one", b"two", b"three"], 2)


@pytest.mark.parametrize("at_once", [len(OK + PLANTED), len(OK), len(OK) - 1])
async def test_an_answer_that_nobody_asked_for_answers_nothing(at_once: int) -> None:
    async def planting(connected: Connected) -> bool:
        await connected.receive()
        await connected.send((OK + PLANTED)[:at_once])
        if at_once == len(OK):
            await asyncio.wait_for(answered.wait(), 10)
        else:  # so that the first part is read alone; read together it proves what the first case does
            await asyncio.sleep(0.1)
        await connected.send((OK + PLANTED)[at_once:])
        return await connected.is_left()

    answered = asyncio.Event()
    async with listening(planting) as endpoint, outlet(endpoint.url) as egress:
        for number in (1, 2):
            assert (await egress.post(endpoint.url, [], b"x")).status == 200
            answered.set()
            assert await asyncio.wait_for(endpoint.ended.get(), 10) is True
            answered.clear()
            assert endpoint.connections == number


async def test_what_follows_the_longest_answer_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 60\r\n\r\n".ljust(99, b"x")
    monkeypatch.setattr(connection, "RESPONSE_MAX", len(answer))

    async def planting(connected: Connected) -> bool:
        await connected.receive()
        await connected.send(answer + PLANTED)
        return await connected.is_left()

    async with listening(planting) as endpoint, outlet(endpoint.url) as egress:
        assert (await egress.post(endpoint.url, [], b"x")).status == 200
        assert await asyncio.wait_for(endpoint.ended.get(), 10) is True


async def opened(port: int) -> EndpointConnection:
    loop = asyncio.get_running_loop()
    _, used = await loop.create_connection(lambda: EndpointConnection(lambda _: None), "127.0.0.1", port)
    return used


async def test_what_was_not_sent_is_dropped_at_the_end() -> None:
    async def late(connected: Connected) -> int:
        await asyncio.wait_for(closed.wait(), 10)
        return await counted(connected)

    closed = asyncio.Event()
    async with listening(late) as endpoint:
        used = await opened(endpoint.port)
        posting = used.post([bytes(64 << 20)], asyncio.get_running_loop().time() + LONG)
        used.abort()
        with pytest.raises(NoResponse):
            await posting
        closed.set()
        received = await asyncio.wait_for(endpoint.ended.get(), 10)
        assert isinstance(received, int)
        assert received < 32 << 20


async def test_not_even_one_read_is_looked_at_beyond_64_kib() -> None:
    async with listening() as endpoint:
        used = await opened(endpoint.port)
        posting = used.post([], asyncio.get_running_loop().time() + LONG)
        used.data_received(b"HTTP/1.1 103 Early\r\n\r\n" * 10_000 + OK)
        with pytest.raises(NoResponse, match="no head"):
            await posting


async def test_the_end_is_heard_at_once() -> None:
    """Between eof_received and connection_lost the loop may run others, and one of them may need a connection."""
    async with listening() as endpoint:
        used = await opened(endpoint.port)
        assert used.usable
        used.eof_received()
        assert not used.usable


async def test_a_connection_that_ends_before_its_first_use_is_no_timeout() -> None:
    async def slamming(_connected: Connected) -> None:
        return

    async with listening(slamming) as endpoint, outlet(endpoint.url) as egress:
        for _ in range(10):
            with pytest.raises(NoResponse, match=r"the connection broke|closed the connection"):
                await egress.post(endpoint.url, [], b"x")


async def test_connection_close_is_obeyed() -> None:
    async def closing(connected: Connected) -> bool:
        await connected.receive()
        await connected.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        return await connected.is_left()

    async with listening(closing) as endpoint, outlet(endpoint.url) as egress:
        for _ in range(2):
            assert (await egress.post(endpoint.url, [], b"x")).status == 200
            assert await asyncio.wait_for(endpoint.ended.get(), 10) is True
        assert endpoint.connections == 2


async def test_a_cancelled_post_ends_its_connection() -> None:
    async with listening(silent) as endpoint, outlet(endpoint.url) as egress:
        posting = asyncio.create_task(egress.post(endpoint.url, [], b"x"))
        await several(endpoint.began, 1)
        posting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await posting
        await several(endpoint.ended, 1)


async def test_a_slow_endpoint_leaves_room_for_the_others() -> None:
    async with (
        listening(silent) as slow,
        listening() as good,
        outlet(slow.url, good.url) as egress,
    ):
        stuck = [asyncio.create_task(egress.post(slow.url, [], b"x")) for _ in range(300)]
        await several(slow.began, CONCURRENCY_PER_ORIGIN)
        for _ in range(20):
            assert (await egress.post(good.url, [], b"x")).status == 200
        assert slow.connections == CONCURRENCY_PER_ORIGIN
        for task in stuck:
            task.cancel()
        await asyncio.wait(stuck)
        await several(slow.ended, CONCURRENCY_PER_ORIGIN)
        again = asyncio.create_task(egress.post(slow.url, [], b"x"))  # the places are free again
        await several(slow.began, 1)
        again.cancel()
        await asyncio.wait({again})
        await several(slow.ended, 1)


async def test_a_queue_is_not_a_timeout() -> None:
    """Two timeouts' worth of POSTs wait for the places of a slow endpoint; each has its own time."""

    async def deliberate(connected: Connected) -> None:
        while True:
            await connected.receive()
            await asyncio.sleep(0.5)
            await connected.send(OK)

    async with listening(deliberate) as endpoint, outlet(endpoint.url, milliseconds=5000) as egress:
        posts = [egress.post(endpoint.url, [], b"x") for _ in range(CONCURRENCY_PER_ORIGIN * 12)]
        answers = await asyncio.gather(*posts)
    assert answers == [EndpointResponse(200, None)] * len(posts)


async def test_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def patient(connected: Connected) -> bool:
        await connected.receive()
        await connected.send(OK)
        return await connected.is_left()

    monkeypatch.setattr("bridge.callbacks.callback_sender.IDLE_SECONDS", 0.05)
    async with listening(patient) as endpoint, outlet(endpoint.url) as egress:
        await egress.post(endpoint.url, [], b"x")
        assert await asyncio.wait_for(endpoint.ended.get(), 10) is True


async def test_no_more_are_kept_idle_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.callbacks.callback_sender.REUSABLE_MAX", 2)

    async def patient(connected: Connected) -> bool:
        await connected.receive()
        await asyncio.wait_for(all_here.wait(), 10)
        await connected.send(OK)
        return await connected.is_left()

    all_here = asyncio.Event()
    async with listening(patient) as endpoint, outlet(endpoint.url) as egress:
        posts = [asyncio.create_task(egress.post(endpoint.url, [], b"x")) for _ in range(5)]
        await several(endpoint.began, 5)
        all_here.set()
        await asyncio.gather(*posts)
        await several(endpoint.ended, 3)
        assert endpoint.ended.empty()


async def test_those_that_died_idle_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.callbacks.callback_sender.REUSABLE_MAX", 1)

    async def settling_down(connected: Connected) -> None:
        while True:
            await connected.receive()
            await connected.send(OK)
            if endpoint.connections <= 3:
                return

    async with (
        listening(settling_down) as endpoint,
        listening(saying(OK)) as other,
        outlet(endpoint.url) as egress,
    ):
        for _ in range(6):
            assert (await egress.post(endpoint.url, [], b"x")).status == 200
            await heard_of_the_end(other.port)
        assert endpoint.connections == 4


async def test_close_closes_what_is_idle() -> None:
    async def patient(connected: Connected) -> bool:
        await connected.receive()
        await connected.send(OK)
        return await connected.is_left()

    async with listening(patient) as endpoint:
        async with outlet(endpoint.url) as egress:
            await egress.post(endpoint.url, [], b"x")
        assert await asyncio.wait_for(endpoint.ended.get(), 10) is True


HARMFUL = (
    (b"x", b"a\r\nhost: evil"),
    (b"x", b"a\nb"),
    (b"x", b"a\0b"),
    (b"x y", b"a"),
    (b"x:", b"a"),
    (b"", b"a"),
    (b"host", b"evil"),
    (b"content-length", b"1000"),
    (b"transfer-encoding", b"chunked, gzip"),
)


async def test_a_header_that_would_change_the_request_is_refused(trap: Trap, subtests: pytest.Subtests) -> None:
    url = f"http://127.0.0.1:{trap.port}"
    for pair in HARMFUL:
        with subtests.test(repr(pair)):
            async with outlet(url) as egress:
                with pytest.raises(RequestBlocked, match=r"the header b.* cannot be sent"):
                    await egress.post(url, [pair], b"x")
            assert trap.sprung() == 0


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"])
async def test_the_sentences_do_not_show_path_and_query(answer: bytes) -> None:
    async with listening(saying(answer)) as endpoint, outlet(endpoint.url) as egress:
        for url in (endpoint.url, "http://127.0.0.2", "http://127.0.0.1:1:1"):
            with pytest.raises(RequestFailed) as caught:
                await egress.post(url + "/hook?token=canary", [], b"x")
            assert "canary" not in str(caught.value)
            assert "hook" not in str(caught.value)


async def test_sixty_four_at_once_share_sixty_four_connections() -> None:
    async with listening(obliging) as endpoint, outlet(endpoint.url) as egress:
        for _ in range(5):
            posts = [egress.post(endpoint.url, [], b"x") for _ in range(64)]
            assert await asyncio.gather(*posts) == [EndpointResponse(200, None)] * 64
        assert endpoint.connections <= 64
