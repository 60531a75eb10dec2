"""gzip bodies on their way through a backend: the bound holds whatever they claim."""

import gzip
import time
import tracemalloc

import pytest

from adapters import gzip_stored_plain
from adapters.gzip_stored_plain import INFLATED_MAX, deflate, inflate, is_gzip
from bridge.inflate import NotGzip


def test_what_is_deflated_is_inflated_again() -> None:
    for size in (0, 1, 1023, 1024, 1025, 100_000):
        body = bytes(number % 251 for number in range(size))
        assert inflate(deflate(body)) == body
        assert inflate(deflate(body) + gzip.compress(b"more") + deflate(b"")) == body + b"more"


def test_the_same_body_is_deflated_to_the_same_bytes_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    for seconds in (1_000_000_000, 1_700_000_000):
        monkeypatch.setattr(time, "time", lambda seconds=seconds: seconds)
        written.append(deflate(b"x" * 100))
    assert written[0] == written[1]
    assert written[0][4:8] == bytes(4), "gzip's own field for the time is empty (RFC 1952 2.3.1)"
    assert gzip.decompress(written[0]) == b"x" * 100


def test_the_limit_is_allowed_and_one_byte_more_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gzip_stored_plain, "INFLATED_MAX", 3000)
    for parts in ([3000], [1000, 2000], [3000, 0]):
        assert inflate(b"".join(deflate(bytes(size)) for size in parts)) == bytes(3000)
    for parts in ([3001], [1000, 2001], [3000, 1]):
        body = b"".join(deflate(bytes(size)) for size in parts)
        assert inflate(body) is None
        assert is_gzip(body), "as far as it was looked at"


def test_a_bomb_costs_no_more_than_the_limit() -> None:
    body = gzip.compress(bytes(8 * INFLATED_MAX), 1)
    tracemalloc.start()
    try:
        assert inflate(body) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * INFLATED_MAX


def test_what_is_not_gzip_from_beginning_to_end_is_told(subtests: pytest.Subtests) -> None:
    whole = deflate(b"text" * 999)
    cases: list[bytes] = [
        b"",
        b"text",
        whole[:-1],
        whole[:1],
        whole + b"\0",
        whole + whole[:-1],
        whole[:20] + bytes(20),
    ]
    for body in cases:
        with subtests.test(body=body):
            assert not is_gzip(body)
            with pytest.raises(NotGzip):
                inflate(body)
    assert is_gzip(whole)
