"""A scripted bridge behind the client: it plays push streams and settles receipts as a test says."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx

from bridge.client import Client, ReceivedMessage, Receiver
from bridge.errors import (
    BridgeError,
    encode_problem,
)
from bridge.message import Message
from bridge.wire.headers import parse
from bridge.wire.stream_framings import StreamEnd, StreamMessage, decode_line, encode_line
from tests.mock_transport import MockTransport

PATIENCE = 20.0
"""Seconds after which a test that waits has failed."""

Step = bytes | StreamEnd | Exception | Callable[[], Awaitable[object]]
Settle = Callable[[str, list[str]], Awaitable[BridgeError | None]]


def line(number: int) -> bytes:
    return encode_line(StreamMessage(Message("orders", b"%d" % number, delivery_count=1), f"r{number}", 5)) + b"\n"


SILENCE = StreamEnd("waitmills")


async def forever() -> None:
    await asyncio.Event().wait()


async def accept_all(_how: str, _receipts: list[str]) -> BridgeError | None:
    return None


class ScriptedBridge:
    """Answers each push with the next of its streams or an error; `settle` answers ack, nack and extend."""

    def __init__(self, *streams: list[Step] | BridgeError | httpx.Response, settle: Settle = accept_all) -> None:
        self.streams = list(streams)
        self.asked: list[dict[str, str]] = []
        self.accepted: list[str] = []
        self.settled: list[tuple[str, list[str]]] = []
        self._settle = settle

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        asked = parse(request.headers.raw).parameters
        if request.url.path == "/v1/push":
            self.asked.append(asked)
            self.accepted.append(request.headers["accept"])
            stream = self.streams.pop(0)
            if isinstance(stream, httpx.Response):
                return stream
            if isinstance(stream, BridgeError):
                return error_response(stream)
            return httpx.Response(200, headers={"content-type": "application/x-ndjson"}, content=self._play(stream))
        how = request.url.path.removeprefix("/v1/")
        receipts = json.loads(request.content)["receipts"] if request.content else asked["receipt"].split(",")
        if (error := await self._settle(how, receipts)) is not None:
            return error_response(error)
        self.settled.append((how, receipts))
        return httpx.Response(204)

    async def _play(self, steps: list[Step]) -> AsyncIterator[bytes]:
        sent = b""
        for step in steps:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, bytes):
                yield step
                sent += step
            elif isinstance(step, StreamEnd):
                if step.detail is None:
                    await self._wait_until_settled(sent)
                yield encode_line(step) + b"\n"
            else:
                await step()

    async def _wait_until_settled(self, sent: bytes) -> None:
        """Do as a bridge does at a requested end."""
        lines = [decode_line(raw) for raw in sent.split(b"\n") if raw]
        receipts = {line.receipt for line in lines if isinstance(line, StreamMessage)}
        await until(lambda: receipts <= {receipt for _, some in self.settled for receipt in some})

    @property
    def acknowledged(self) -> list[str]:
        return [receipt for how, receipts in self.settled if how == "ack" for receipt in receipts]


def error_response(error: BridgeError) -> httpx.Response:
    pairs, body = encode_problem(error)
    return httpx.Response(error.status, headers=pairs, content=body)


def client(scripted: ScriptedBridge) -> Client:
    return Client("http://bridge:8080", transport=MockTransport(scripted))


def number(received: ReceivedMessage) -> int:
    return int(received.message.body)


async def numbers(messages: Receiver) -> list[int]:
    async with asyncio.timeout(PATIENCE):
        return [number(received) async for received in messages]


async def fail_at(bridge: Client, at: int) -> None:
    async with bridge.push("orders", "g") as messages:
        async for received in messages:
            _ = 1 / (at - number(received))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for is the code's own, it sets no event
            await asyncio.sleep(0.001)
