import gzip
import random
import tracemalloc
import zlib
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import BodyInvalid, BodyTooLarge
from bridge.wire.compression import accepts_gzip, deflate, inflate
from tests.unit.strategies import refusal

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


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 100_000, 3 * MIB])
def test_the_exact_limit_is_allowed_and_one_byte_more_is_not(size: int) -> None:
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


@pytest.mark.parametrize("tail", [b"\0", b"garbage", b"\x1f\x8b", b"\x1f", deflate(b"x")[:-1]])
def test_bytes_behind_the_last_member_are_refused(tail: bytes) -> None:
    with pytest.raises(BodyInvalid):
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

    real = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", Counting)
    count = 5000
    assert inflate(deflate(b"") * count, 10) == b""
    assert copied < count * 2048


def test_the_same_body_is_deflated_to_the_same_bytes() -> None:
    assert deflate(b"x" * 100) == deflate(b"x" * 100)


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
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
    ],
)
def test_gzip_is_sent_only_to_who_asks_for_it(header: bytes, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted
