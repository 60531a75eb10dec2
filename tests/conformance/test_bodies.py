"""Bodies: never changed, compression undone for those who do not take it."""

import asyncio
import gzip
import random

import pytest

from .conversation import Conversation, Target, refused

pytestmark = pytest.mark.slow_on_brokers

TEXT = b"a line that compresses well\n" * 200
SIZES = (0, 1, 1000, 65_535, 65_536, 300_000)
AROUND_A_MEBIBYTE = (1_040_000, 1_048_000, 1_048_576, 1_048_588, 1_100_000)
"""Brokers count what is around a body as well; Kafka's own limit for all of it is 1,048,588."""


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)  # noqa: S311 - the same bytes in each run


async def test_a_body_of_any_bytes_arrives_unchanged(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > - **Bodies** are never changed.

    > One message: headers + body. `200` means stored as its durability asks.
    """
    for body in (*map(noise, SIZES), bytes(range(256)) + b"\r\n--boundary--\r\n\x00"):
        with subtests.test(f"{len(body)} bytes"):
            await talk.produce(body)
            taken = await talk.take()
            assert taken.body == body
            await talk.ack(taken.receipt)


async def test_the_largest_body_arrives_unchanged_or_is_refused_cleanly(
    bridge: Target, talk: Conversation, subtests: pytest.Subtests
) -> None:
    """
    > - **Bodies** are never changed.

    > Three outcomes, and a client can tell them apart: **stored** (200), **not stored** (every 4xx, and 503 with
    > `x-oms-retry-safe: true`), **unknown** (504, or a broken connection).
    """
    largest = min(bridge.limit("body"), 4 << 20)
    sizes = (1_000_000, *(size for size in AROUND_A_MEBIBYTE if size < largest), largest)
    kept = []
    async with talk.beside() as neighbour:
        for size in sizes:
            with subtests.test(f"{size} bytes"):
                answer, small = await asyncio.gather(
                    talk.post(noise(size), messagekey="k"), neighbour.post(b"%d" % size, messagekey="k")
                )
                assert small.status_code == 200, "a message beside it is not refused with it"
                if answer.status_code == 200:
                    kept.append(noise(size))
                else:
                    refused(answer, 413, "body-too-large")
                    assert size > 1_000_000, "less than a MiB is taken by every backend as it is set up by default"
    taken = {t.body for t in await talk.take_all(len(kept) + len(sizes))}
    assert taken == {*kept, *(b"%d" % size for size in sizes)}
    await talk.nothing()


async def test_the_media_type_of_a_body_arrives_with_it(talk: Conversation) -> None:
    """
    > - **Bodies** are never changed.
    """
    await talk.produce(b"{}", [("content-type", "application/vnd.shop+json; v=2")])
    assert (await talk.take()).headers["content-type"] == "application/vnd.shop+json; v=2"


async def test_a_body_without_a_media_type_is_octets(talk: Conversation) -> None:
    """
    > - **Bodies** are never changed.
    """
    await talk.produce(b"?")
    assert (await talk.take()).headers["content-type"] == "application/octet-stream"


async def test_a_gzipped_body_is_inflated_for_a_consumer_that_does_not_take_gzip(
    bridge: Target, talk: Conversation
) -> None:
    """
    > Compression is undone for a consumer that does not accept it.

    > | compression | `gzip` (the body arrives gzipped; consumers get it inflated unless they accept gzip) |
    > client | 400 unknown algorithm or corrupt body |
    """
    bridge.need("compression")
    await talk.produce(gzip.compress(TEXT), compression="gzip")
    taken = await talk.take()
    assert taken.body == TEXT
    assert "content-encoding" not in taken.headers
    assert "x-oms-h-compression" not in taken.headers


async def test_a_gzipped_body_travels_gzipped_to_a_consumer_that_takes_it(bridge: Target, talk: Conversation) -> None:
    """
    > | compression | `gzip` (the body arrives gzipped; consumers get it inflated unless they accept gzip) |
    > client | 400 unknown algorithm or corrupt body |
    """
    bridge.need("compression")
    await talk.produce(gzip.compress(TEXT), compression="gzip")
    taken = await talk.take([("accept-encoding", "br, gzip;q=0.5")])
    assert taken.headers["content-encoding"] == "gzip"
    assert int(taken.headers["content-length"]) < len(TEXT)
    assert taken.body == TEXT  # httpx has undone the content coding


@pytest.mark.wire
async def test_the_content_coding_of_http_means_the_same(bridge: Target, talk: Conversation) -> None:
    """
    > | compression | `gzip` (the body arrives gzipped; consumers get it inflated unless they accept gzip) |
    > client | 400 unknown algorithm or corrupt body |
    """
    bridge.need("compression")
    for coding in ("gzip", "x-gzip", "X-GZIP", "identity, gzip"):
        await talk.produce(gzip.compress(TEXT), [("content-encoding", coding)])
        assert (await talk.take()).body == TEXT
    await talk.produce(TEXT, [("content-encoding", "identity")])
    assert (await talk.take()).body == TEXT


@pytest.mark.wire
async def test_an_uncompressed_body_is_not_compressed_on_the_way(talk: Conversation) -> None:
    """
    > - **Bodies** are never changed.
    """
    await talk.produce(TEXT)
    taken = await talk.take([("accept-encoding", "gzip")])
    assert "content-encoding" not in taken.headers
    assert taken.body == TEXT


@pytest.mark.wire
async def test_an_unknown_algorithm_is_refused(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > | compression | `gzip` (the body arrives gzipped; consumers get it inflated unless they accept gzip) |
    > client | 400 unknown algorithm or corrupt body |
    """
    for algorithm in ("zip", "deflate", "br", "gzip, gzip"):
        with subtests.test(algorithm):
            detail = refused(await talk.post(gzip.compress(TEXT), compression=algorithm), 400, "header-invalid")
            assert "x-oms-h-compression" in detail
    await talk.nothing()


@pytest.mark.wire
async def test_a_corrupt_body_is_refused(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > | compression | `gzip` (the body arrives gzipped; consumers get it inflated unless they accept gzip) |
    > client | 400 unknown algorithm or corrupt body |
    """
    whole = gzip.compress(TEXT)
    bodies = {
        "empty": b"",
        "text": b"not gzip",
        "cut": whole[:-1],
        "longer": whole + b"rest",
        "damaged": whole[:40] + b"\0" * 9,
    }
    for name, body in bodies.items():
        with subtests.test(name):
            refused(await talk.post(body, compression="gzip"), 400, "body-invalid")
    await talk.nothing()
