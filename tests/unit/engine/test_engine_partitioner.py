import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.engine.partitioner import Partitioner, murmur2, partition_of
from bridge.message import Message


def test_murmur2_is_kafka_s_as_its_own_test_publishes_it(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes, int]] = [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ]
    for data, signed in cases:
        with subtests.test(data=data, signed=signed):
            assert murmur2(data) == signed % 2**32


@given(st.binary(max_size=40))
def test_murmur2_is_the_java_code_line_by_line(data: bytes) -> None:
    assert murmur2(data) == _java(data) % 2**32


@given(st.text(max_size=20), st.integers(1, 1000))
def test_a_partition_is_to_positive_modulo(key: str, partitions: int) -> None:
    """`Utils.toPositive(Utils.murmur2(keyBytes)) % numPartitions`, `toPositive` being `number & 0x7fffffff`."""
    assert partition_of(key, partitions) == (_java(key.encode()) & 0x7FFFFFFF) % partitions
    assert 0 <= partition_of(key, partitions) < partitions


def test_half_a_surrogate_pair_has_a_partition_too() -> None:
    assert 0 <= partition_of("\ud800", 8) < 8


def test_messages_without_a_key_use_all_partitions_of_their_destination_in_turn() -> None:
    partitioner = Partitioner()
    chosen = [partitioner.choose(Message(name), 4) for _ in range(4) for name in ("orders", "bills")]
    assert (chosen[::2], chosen[1::2]) == ([0, 1, 2, 3], [0, 1, 2, 3])
    partitioner.forget("orders")
    assert [partitioner.choose(Message(name), 4) for name in ("orders", "bills")] == [0, 0]
    for _ in range(2):
        assert partitioner.choose(Message("bills"), 1) == 0, "it has fewer partitions now"


def test_of_many_destinations_the_one_written_longest_ago_is_forgotten() -> None:
    partitioner = Partitioner()
    for number in range(10_000):
        partitioner.choose(Message(f"d{number}"), 4)
        partitioner.choose(Message("d0"), 4)
    assert len(partitioner._last) == 4096
    assert "d0" in partitioner._last
    assert "d1" not in partitioner._last
    rotation = [[partitioner.choose(Message(f"d{number}"), 4) for number in range(5000)] for _ in range(20)]
    assert len({partition for chosen in rotation for partition in chosen[1:2]}) > 1, "not always the first partition"


def _int(value: int) -> int:
    """Wrap as a Java int."""
    return (value + 2**31) % 2**32 - 2**31


def _shift(value: int, bits: int) -> int:
    """Java's `>>>` on an int."""
    return _int((value % 2**32) >> bits)


def _java(data: bytes) -> int:
    """Transcribe `org.apache.kafka.common.utils.Utils.murmur2`, statement by statement."""
    length = len(data)
    m = 0x5BD1E995
    h = _int(0x9747B28C ^ length)
    for i in range(length // 4):
        i4 = i * 4
        k = _int(data[i4] + (data[i4 + 1] << 8) + (data[i4 + 2] << 16) + (data[i4 + 3] << 24))
        k = _int(k * m)
        k = _int(k ^ _shift(k, 24))
        k = _int(k * m)
        h = _int(h * m)
        h = _int(h ^ k)
    tail = length & ~3
    if length % 4 == 3:
        h = _int(h ^ (data[tail + 2] << 16))
    if length % 4 >= 2:
        h = _int(h ^ (data[tail + 1] << 8))
    if length % 4 >= 1:
        h = _int(h ^ data[tail])
        h = _int(h * m)
    h = _int(h ^ _shift(h, 13))
    h = _int(h * m)
    return _int(h ^ _shift(h, 15))
