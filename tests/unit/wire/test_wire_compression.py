import gzip
import random
import tracemalloc
import zlib
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import BodyInvalid, BodyTooLarge, ContentTypeUnsupported
from bridge.long_work import run_at_once
from bridge.message import Message
from bridge.wire import gzip_body
from bridge.wire.gzip_body import accepts_gzip, is_gzip
from tests.unit.strategies import refusal


def deflate(body: bytes) -> bytes:
    return gzip.compress(body, compresslevel=6, mtime=0)


def inflate(body: bytes, limit: int) -> bytes:
    return b"".join(gzip_body.inflate(body, limit))


def inflate_message(message: Message, limit: int) -> Message:
    return run_at_once(gzip_body.inflate_message(message, limit))


MIB = 1 << 20


@cache
def bomb() -> bytes:
    """Return 1 GiB of zeros as 1 MiB of gzip, behind 1 MiB that does not shrink: harmless at first, then a bomb."""

    squeeze = zlib.compressobj(9, wbits=-15)
    noise = squeeze.compress(random.Random(7).randbytes(MIB)) + squeeze.flush(zlib.Z_FULL_FLUSH)  # noqa: S311
    block = squeeze.compress(bytes(MIB)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff" + noise + block * 1024


@given(st.binary(max_size=5000))
def test_what_is_deflated_is_inflated_again(body: bytes) -> None:
    assert inflate(deflate(body), len(body)) == body


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5))
def test_several_members_are_one_body(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    assert inflate(b"".join(map(gzip.compress, parts)), len(whole)) == whole


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=4))
def test_the_limit_holds_for_all_members_together(parts: list[bytes]) -> None:
    with pytest.raises(BodyTooLarge):
        inflate(b"".join(map(gzip.compress, parts)), sum(map(len, parts)) - 1)


def test_the_exact_limit_is_allowed_and_one_byte_more_is_not(subtests: pytest.Subtests) -> None:
    cases: list[int] = [0, 1, 1023, 1024, 100_000, 3 * MIB]
    for size in cases:
        with subtests.test(size=size):
            body = deflate(bytes(size))
            assert len(inflate(body, size)) == size
            if size:
                with pytest.raises(BodyTooLarge):
                    inflate(body, size - 1)


@pytest.mark.parametrize("size", [0, 10, 5000])
def test_a_truncated_body_is_refused_wherever_it_ends(size: int) -> None:
    body = deflate(bytes(i * 7 % 251 for i in range(size)))
    for end in range(len(body)):
        with pytest.raises(BodyInvalid):
            inflate(body[:end], size)


def test_bytes_behind_the_last_member_are_refused(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [b"\0", b"garbage", b"rest", b"\x1f\x8b", b"\x1f", deflate(b"x")[:-1]]
    for tail in cases:
        with subtests.test(tail=tail), pytest.raises(BodyInvalid):
            inflate(deflate(b"body") + tail, 100)


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_flipped_byte_never_yields_another_body(position: int, flip: int) -> None:
    """It is refused; only the bits that pad deflate's last byte may differ, and they mean nothing."""
    plain = b"pay 100 EUR to Alice" * 3
    body = bytearray(deflate(plain))
    position = 10 + position % (len(body) - 10)
    body[position] ^= flip
    assert refusal(lambda: inflate(bytes(body), 1000)) is not None or inflate(bytes(body), 1000) == plain


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=100).map(deflate(b"")[:10].__add__)))
def test_no_bytes_raise_anything_but_the_error_tree(body: bytes) -> None:
    error = refusal(lambda: inflate(body, 50))
    assert error is not None or len(inflate(body, 50)) <= 50


def test_a_body_that_is_no_gzip_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [
        b"",
        b"plain",
        gzip.compress(b"x" * 99)[:-4],
        gzip.compress(b"x" * 99) + b"rest",
        gzip.compress(b"x" * 9999)[:30] + bytes(20),
    ]
    for body in cases:
        with (
            subtests.test(body=body),
            pytest.raises(BodyInvalid, match=r"x-oms-h-compression \(or content-encoding\): .*gzip"),
        ):
            inflate(body, 1 << 16)


def test_a_small_bomb_is_refused_at_the_limit(subtests: pytest.Subtests) -> None:
    limit = 64 << 10
    cases: list[tuple[str, bytes, bool]] = [
        ("one", gzip.compress(bytes(40 << 20)), True),
        ("just", gzip.compress(bytes(limit + 1)), True),
        ("members", gzip.compress(bytes(limit // 2)) * 3, True),
        ("nested", gzip.compress(gzip.compress(bytes(30 << 20)) + bytes(limit)), True),
        ("many empty members", gzip.compress(b"") * ((4 << 20) // 20), False),
    ]
    for kind, body, refused in cases:
        with subtests.test(kind):
            error = refusal(lambda body=body: inflate(body, limit))  # type: ignore[misc]
            assert isinstance(error, BodyTooLarge) is refused
            assert error is None or f"more than {limit} bytes" in error.detail


def test_a_consumer_that_takes_no_gzip_gets_the_body_inflated() -> None:
    packed = Message("orders", deflate(b"x" * 100), {"a": "1"}, compression="gzip")
    assert inflate_message(packed, 100) == Message("orders", b"x" * 100, {"a": "1"})
    assert inflate_message(packed, 99) is packed, "beyond the limit it is handed on as it is"
    for message in (packed._replace(body=b"text"), packed._replace(compression=None)):
        assert inflate_message(message, 100) is message


def test_gzip_is_the_only_content_coding(subtests: pytest.Subtests) -> None:
    none: list[bytes | None] = [None, b"", b"identity", b"Identity, identity"]
    gzip: list[bytes | None] = [
        b"gzip",
        b"GZIP",
        b"x-gzip",
        b"X-GZip",
        b" x-gzip ",
        b"gzip, identity",
        b"identity,x-gzip",
    ]
    for coding, coded in (*((each, False) for each in none), *((each, True) for each in gzip)):
        with subtests.test(coding=coding):
            assert is_gzip(coding) is coded
    for other in (b"br", b"zstd", b"gzip, gzip", b"x-gzip, gzip", b"gzip, br", b"\xff"):
        with subtests.test(other=other), pytest.raises(ContentTypeUnsupported, match="content-encoding must be gzip"):
            is_gzip(other)


def test_a_bomb_costs_no_more_than_the_limit() -> None:
    body = bomb()
    assert len(body) < 3 * MIB
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge):
            inflate(body, 4 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * MIB


def test_what_follows_a_member_is_not_copied_for_each_of_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = 0

    class Counting:
        def __init__(self, wbits: int) -> None:
            self._member = real(wbits)

        def decompress(self, data: bytes, limit: int) -> bytes:
            nonlocal copied
            part = self._member.decompress(data, limit)
            copied += len(self._member.unused_data)
            return part

        @property
        def eof(self) -> bool:
            return self._member.eof

        @property
        def unused_data(self) -> bytes:
            return self._member.unused_data

        @property
        def unconsumed_tail(self) -> bytes:
            return self._member.unconsumed_tail

    real = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", Counting)
    count = 5000
    assert inflate(deflate(b"") * count, 10) == b""
    assert copied < count * 2048


def test_gzip_is_sent_only_to_who_asks_for_it(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes, bool]] = [
        (b"gzip", True),
        (b"GZIP", True),
        (b"br, x-gzip;q=0.5", True),
        (b"deflate, gzip", True),
        (b"", False),
        (b"*", False),
        (b"gzip;q=0", False),
        (b"gzip; q=0.000", False),
        (b"br", False),
        (b"gzipped", False),
    ]
    for header, accepted in cases:
        with subtests.test(header=header, accepted=accepted):
            assert accepts_gzip(header) is accepted


def test_a_body_is_inflated_in_many_pieces(subtests: pytest.Subtests) -> None:
    """Each piece takes a bounded amount of work, read or written."""
    cases = {
        "large content": deflate(bytes(4 * MIB)),
        "no content": deflate(b"") * 50_000,
        "noise": deflate(bomb()[:MIB]),
    }
    for name, body in cases.items():
        with subtests.test(name):
            pieces = list(gzip_body.inflate(body, 4 * MIB))
            assert len(pieces) >= max(len(body), sum(map(len, pieces)) // 4) // (64 << 10)
            assert max(map(len, pieces)) <= 512 << 10
