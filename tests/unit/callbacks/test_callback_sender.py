"""The parts that send callbacks, put together as the settings say."""

import asyncio
import base64
import gzip
import hashlib
import hmac
from itertools import count
from pathlib import Path

import pytest

from bridge.callbacks.callback_sender import SenderOptions, build_delivery_options
from bridge.callbacks.connection import describe_cause
from bridge.callbacks.registration import BatchOptions, Registration
from bridge.callbacks.retry_policy import NoResponse, RequestBlocked
from bridge.engine.clock import SystemClock
from bridge.engine.destination_names import SubscriptionKey
from bridge.errors import CallbackRefused
from bridge.long_work import Slicer
from bridge.message import Message
from tests.unit.callbacks.delivery_worker_bench import Bench
from tests.unit.engine.fakes import delivery
from tests.unit.engine.virtual import LoopClock

KEY = bytes(range(32))
ALLOWED = SenderOptions(
    targets=["http://127.0.0.1:1"],
    networks=["127.0.0.1"],
    secrets=["whsec_" + base64.b64encode(KEY).decode()],
    ca=None,
    in_flight=7,
    timeout=30_000,
    lease=11_000,
    body_max=100,
)


def to(url: str, batch: BatchOptions | None = None) -> Registration:
    return Registration(SubscriptionKey("orders", "app"), url, 1, batch=batch)


class Endpoint:
    """Answers each request with 200, or not at all, and keeps it."""

    def __init__(self) -> None:
        self.answers = True
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.connections: set[asyncio.Task[None]] = set()

    def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head)}
                self.requests.append((headers, await reader.readexactly(int(headers["content-length"]))))
                if self.answers:
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def test_a_message_is_sent_signed_and_inflated_as_the_settings_say() -> None:
    endpoint = Endpoint()
    server = await asyncio.start_server(endpoint, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    sending = build_delivery_options(ALLOWED._replace(targets=[url], timeout=1000), SystemClock(), Slicer())
    assert (sending.in_flight, sending.lease) == (7, 11_000)
    assert str(sending.check_url(url)) == f"{url}/"
    bodies = [gzip.compress(b"x" * size) for size in (100, 101)]
    for body in bodies:
        message = await sending.inflate(Message("orders", body, message_id="m-1", compression="gzip"))
        await sending.post(to(url), [message])
    (headers, plain), (_, packed) = endpoint.requests
    assert plain == b"x" * 100
    assert packed == bodies[1], "beyond what a body may inflate to it is sent as it is"
    signed = f"m-1.{headers['webhook-timestamp']}.".encode() + plain
    assert headers["webhook-signature"] == "v1," + base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
    endpoint.answers = False
    with pytest.raises(NoResponse, match="within 1 s"):
        await sending.post(to(url), [Message("orders", b"", message_id="m-2")])
    await sending.close()
    await asyncio.wait(endpoint.connections)
    server.close()
    await server.wait_closed()


async def test_a_gzip_bomb_is_inflated_in_slices_while_other_work_goes_on(clock: LoopClock) -> None:
    steps = count()
    slicer = Slicer(lambda: next(steps))  # each step ends its slice, however fast the machine is
    sending = build_delivery_options(ALLOWED._replace(body_max=32 << 20), clock, slicer)
    bomb = delivery(1, body=gzip.compress(bytes(20 << 20)), compression="gzip")
    async with Bench(clock, bomb, inflate=sending.inflate) as bench:
        turns = 0
        while not bench.endpoint.posts:
            turns += 1
            await asyncio.sleep(0)
        assert bench.endpoint.body_sizes == [20 << 20]
        assert turns > 80, "the content comes in 80 pieces of 256 KiB"


def test_a_cause_is_the_system_s_text_without_its_number() -> None:
    assert describe_cause(ConnectionRefusedError(111, "Connection refused")) == "Connection refused"
    assert describe_cause(OSError("two addresses failed")) == "two addresses failed"
    assert describe_cause(ValueError("odd")) == "odd"
    assert describe_cause(TimeoutError()) == "TimeoutError"


async def test_networks_that_are_not_named_are_not_reached() -> None:
    sending = build_delivery_options(ALLOWED._replace(networks=[]), SystemClock(), Slicer())
    with pytest.raises(RequestBlocked, match="loopback"):
        await sending.post(to(ALLOWED.targets[0]), [Message("orders")])
    await sending.close()


async def test_an_address_that_is_never_dialled_is_refused_before_it_is_registered(subtests: pytest.Subtests) -> None:
    targets = ["http://127.0.0.1", "http://169.254.169.254", "http://[::1]", "http://8.8.8.8", "http://localhost"]
    options = build_delivery_options(ALLOWED._replace(targets=targets, networks=["127.0.0.1"]), SystemClock(), Slicer())
    for url in ("http://127.0.0.1/hook", "http://8.8.8.8", "http://localhost/"):  # a name is checked when it is dialled
        with subtests.test(url):
            assert options.check_url(url)
    for url, reason in (("http://169.254.169.254/x", "link-local"), ("http://[::1]/?token=secret", "loopback")):
        with subtests.test(url):
            with pytest.raises(CallbackRefused, match=reason) as caught:
                options.check_url(url)
            assert "callbacks.networks does not allow it" in caught.value.detail
            assert "token" not in caught.value.detail
    await options.close()


async def test_authorities_are_read_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("none")
    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(OSError, match=r"."):
            build_delivery_options(ALLOWED._replace(ca=tmp_path / name), SystemClock(), Slicer())
