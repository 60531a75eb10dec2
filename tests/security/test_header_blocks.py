"""HTTP/2 header blocks that no client writes: each costs only its sender a stream or a connection."""

from random import Random
from typing import Final
from urllib.parse import urlsplit

import pytest
from hpack import Decoder, Encoder

from tests.conformance.frames import Frames
from tests.http.asking import VERSION
from tests.launch import Bridge
from tests.server.raw_frames import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PRIORITIZED,
    RST_STREAM,
    connected,
    frame,
    number,
)

pytestmark = pytest.mark.extended

BLOCKS: Final = 200
DOCUMENTED: Final = ("503", "504")
REQUESTS: Final = (
    [(":method", "GET"), (":scheme", "http"), (":path", "/v1/capabilities"), (":authority", "localhost")],
    [(":method", "POST"), (":scheme", "http"), (":path", "/v1/messages"), (":authority", "localhost")],
    [(":method", "GET"), (":scheme", "http"), (":path", "/v1/messages?version=1.0.0&source=fuzz&consumerid=g")],
    [(":method", "POST"), (":scheme", "http"), (":path", "/v1/ack"), (":authority", "localhost")],
)
FIELDS: Final = (
    *(("x-oms-version", "1.0.0"), ("x-oms-h-destination", "fuzz"), ("x-oms-h-qos", "9"), ("x-oms-receipt", "a-1-1-b")),
    *((":method", "GET"), (":path", ""), (":status", "200"), (":unknown", "x"), (":authority", "evil.example")),
    *(("connection", "close"), ("transfer-encoding", "chunked"), ("te", "gzip"), ("upgrade", "h2c")),
    *(("content-length", "5"), ("content-length", "-1"), ("content-length", "9" * 30), ("host", "\xff")),
    *(
        ("X-Upper", "1"),
        ("", "no name"),
        ("a b", "a space"),
        ("nul\0", "\0"),
        ("line", "a\r\nset-cookie: b"),
        ("\xff", ""),
    ),
    *(("cookie", "x" * 5000), ("x-oms-p-a*", "UTF-8''%00"), ("sec-fetch-site", "cross-site"), ("origin", "null")),
)


def fuzzed_block(random: Random) -> bytes:
    """Return a header block: a request with unusual fields, of which every second one is damaged as well."""
    fields = [*random.choice(REQUESTS)]
    for _ in range(random.randrange(6)):
        fields.insert(random.randrange(len(fields) + 1), random.choice(FIELDS))
    if random.random() < 0.2:
        fields += [(f"x-oms-p-{each}", "") for each in range(random.randrange(2000))]
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]
    block = bytearray(Encoder().encode(raw, huffman=random.random() < 0.5))
    for _ in range(random.choice((0, 0, 1, 5))):
        at = random.randrange(len(block))
        block[at : at + random.randrange(3)] = random.randbytes(random.randrange(4))
    return bytes(block[: random.randrange(len(block))] if random.random() < 0.1 else block)


def as_frames(random: Random, block: bytes) -> bytes:
    """Return the frames of a request without a body, its header block cut at any place."""
    flags, before, after = END_STREAM, b"", b""
    if random.random() < 0.2:
        flags, before, after = flags | PADDED, b"\x03", bytes(3)
    if random.random() < 0.2:
        flags, before = flags | PRIORITIZED, before + number(random.choice((0, 1, 3))) + b"\x10"
    cuts = sorted(random.randrange(min(len(block), 16_000) + 1) for _ in range(random.randrange(4)))
    pieces = [block[start:end] for start, end in zip([0, *cuts], [*cuts, len(block)], strict=True)]
    pieces = [piece[at : at + 16_000] for piece in pieces for at in range(0, len(piece) or 1, 16_000)]
    last = len(pieces) - 1
    sent = frame(HEADERS, flags | (END_HEADERS if last == 0 else 0), 1, before + pieces[0] + after)
    return sent + b"".join(
        frame(CONTINUATION, END_HEADERS if index == last else 0, 1, piece)
        for index, piece in enumerate(pieces[1:], start=1)
    )


async def outcome(port: int, frames: bytes) -> str:
    """Return the status of the response, or what the server did instead."""
    async with connected(port) as client:
        client.send(frames)
        async for received in client.frames():
            if received.kind == GOAWAY:
                return "goaway"
            if received.stream == 1 and received.kind == RST_STREAM:
                return "reset"
            if received.stream == 1 and received.kind == HEADERS:
                return dict(Decoder().decode(received.payload, raw=True))[b":status"].decode()
    return "closed"


async def test_a_header_block_of_any_bytes_harms_nobody_else(fuzzed: Bridge, subtests: pytest.Subtests) -> None:
    port = urlsplit(fuzzed.url).port or 0
    outcomes = set()
    with Frames(fuzzed.url) as stranger:
        for seed in range(BLOCKS):
            with subtests.test(seed=seed):
                random = Random(seed)  # noqa: S311 - not for secrets
                found = await outcome(port, as_frames(random, fuzzed_block(random)))
                outcomes.add(found)
                assert not found.startswith("5") or found in DOCUMENTED
                assert stranger.ask("GET", "/v1/capabilities", [VERSION]).status == 200
    assert outcomes >= {"200", "400"}, "most of these blocks are requests"
    assert outcomes & {"goaway", "reset", "closed"}, "some are not even header blocks"
