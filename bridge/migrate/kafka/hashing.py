"""How native producers place keys: which of the usual hashes explains where the records of a sample lie. Pure."""

from binascii import crc32
from collections.abc import Callable, Mapping, Sequence
from math import log2
from typing import Final, NamedTuple

from adapters.kafka.record import Record
from bridge.engine.partition import murmur2
from bridge.migrate.finding import Finding, Verdict

_FNV_PRIME: Final = 16_777_619
_FNV_BASIS: Final = 2_166_136_261
_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_ENOUGH: Final = 20
"""Bits: that so many keys lie where a hash says by chance happens once in a million times."""


class _Hash(NamedTuple):
    name: str
    place: Callable[[bytes, int], int]


def judge(sample: Sequence[Record], partitions: int) -> Finding:
    """Say whether the bridge's producers would put a key where the native ones do."""
    keyed = {(record.key, record.partition): record for record in sample if record.key is not None}
    keys = {key for key, _ in keyed}
    if partitions == 1:
        said = (
            "Nothing to do: with one partition any hash is right; before partitions are added, look at the producers."
        )
        return Finding("hash of keys", "one partition", Verdict.WORKS, said)
    if not keys:
        said = "Nothing to do as long as producers give no keys: records without one may lie anywhere."
        return Finding("hash of keys", "no keys in the sample", Verdict.UNKNOWN, said)
    fits = {each.name: sum(each.place(key, partitions) == at for key, at in keyed) for each in _HASHES}
    seen = f"{fits[_OURS]} of {len(keyed)} keys of the sample lie where murmur2 puts them"
    if fits[_OURS] == len(keyed):
        if len(keys) * log2(partitions) < _ENOUGH:
            said = f"{len(keys)} keys are too few to be sure: look at the partitioner of the native producers."
            return Finding("hash of keys", seen, Verdict.UNKNOWN, said)
        said = "Nothing to do: native producers and the bridge put a key into the same partition."
        return Finding("hash of keys", seen, Verdict.WORKS, said)
    return Finding("hash of keys", f"{seen}{_other(fits, len(keyed))}", Verdict.FAILS, _MEND)


def _other(fits: Mapping[str, int], total: int) -> str:
    name, count = max(fits.items(), key=lambda fit: fit[1])
    return f"; {count} where {name} does" if name != _OURS and count * 10 >= total * 9 else ""


def _positive(number: int) -> int:
    return number & 0x7FFFFFFF


def _java(key: bytes, partitions: int) -> int:
    return _positive(murmur2(key)) % partitions


def _librdkafka(key: bytes, partitions: int) -> int:
    return crc32(key) % partitions


def _sarama(key: bytes, partitions: int) -> int:
    """Go's hash/fnv 32a as a signed number, its remainder without a sign."""
    value = _FNV_BASIS
    for byte in key:
        value = (value ^ byte) * _FNV_PRIME & _MASK
    signed = value - (value & _SIGN) * 2
    return abs(signed) % partitions


_OURS: Final = "murmur2"
_HASHES: Final = (
    _Hash(_OURS, _java),
    _Hash("crc32 (librdkafka's default)", _librdkafka),
    _Hash("FNV-1a (Sarama's default)", _sarama),
)
_MEND: Final = (
    "Give the native producers murmur2 first (librdkafka: partitioner=murmur2_random), or move all producers of a key"
    " at once: else its messages lie in two partitions and lose their order; old records stay where they are."
)
