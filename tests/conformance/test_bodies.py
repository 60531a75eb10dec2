"""Bodies: never changed, compression undone for those who do not take it."""

import gzip
import random

import pytest

from .conversation import Conversation, Target, refused

TEXT = b"a line that compresses well\n" * 200
SIZES = (0, 1, 1000, 65_535, 65_536, 300_000)


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)  # noqa: S311 - the same bytes in each run


@pytest.mark.parametrize("size", SIZES)
async def test_a_body_of_any_bytes_arrives_unchanged(talk: Conversation, size: int) -> None:
    """
    > - **Bodies** are never changed.

    > One message: headers + body. `200` means stored as its durability asks.
    """
    await talk.produce(noise(size))
    assert (await talk.take()).body == noise(size)


async def test_every_byte_survives(talk: Conversation) -> None:
    """
    > - **Bodies** are never changed.
    """
    body = bytes(range(256)) + b"\r\n--boundary--\r\n\x00"
    await talk.produce(body)
    assert (await talk.take()).body == body


async def test_the_largest_body_arrives_unchanged(bridge: Target, talk: Conversation) -> None:
    """
    > - **Bodies** are never changed.
    """
    body = noise(min(bridge.limit("body"), 4 << 20))
    await talk.produce(body)
    assert (await talk.take()).body == body


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


async def test_the_content_coding_of_http_means_the_same(bridge: Target, talk: Conversation) -> None:
    """
    > | compression | `gzip` (the body arrives gzipped; consumers get it inflated unless they accept gzip) |
    > client | 400 unknown algorithm or corrupt body |
    """
    bridge.need("compression")
    await talk.produce(gzip.compress(TEXT), [("content-encoding", "gzip")])
    assert (await talk.take()).body == TEXT


async def test_an_uncompressed_body_is_not_compressed_on_the_way(talk: Conversation) -> None:
    """
    > - **Bodies** are never changed.
    """
    await talk.produce(TEXT)
    taken = await talk.take([("accept-encoding", "gzip")])
    assert "content-encoding" not in taken.headers
    assert taken.body == TEXT


@pytest.mark.parametrize("algorithm", ["zip", "deflate", "br", "gzip, gzip"])
async def test_an_unknown_algorithm_is_refused(talk: Conversation, algorithm: str) -> None:
    """
    > | compression | `gzip` (the body arrives gzipped; consumers get it inflated unless they accept gzip) |
    > client | 400 unknown algorithm or corrupt body |
    """
    detail = refused(await talk.post(gzip.compress(TEXT), compression=algorithm), 400, "header-invalid")
    assert "x-oms-h-compression" in detail
    await talk.nothing()


@pytest.mark.parametrize(
    "body",
    [b"", b"not gzip", gzip.compress(TEXT)[:-1], gzip.compress(TEXT) + b"rest", gzip.compress(TEXT)[:40] + b"\0" * 9],
    ids=["empty", "text", "cut", "longer", "damaged"],
)
async def test_a_corrupt_body_is_refused(talk: Conversation, body: bytes) -> None:
    """
    > | compression | `gzip` (the body arrives gzipped; consumers get it inflated unless they accept gzip) |
    > client | 400 unknown algorithm or corrupt body |
    """
    refused(await talk.post(body, compression="gzip"), 400, "body-invalid")
    await talk.nothing()
