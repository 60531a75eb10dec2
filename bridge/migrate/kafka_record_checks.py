"""Checks the newest records of a topic: their keys, values and headers, and which hash placed the keys. Pure."""

from binascii import crc32
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import log2
from typing import Final, NamedTuple

from adapters.field_headers import BROKER_FIELD_PREFIX, INTERNAL_PREFIX, PROPERTY_PREFIX
from adapters.gzip_stored_plain import is_gzip
from adapters.kafka.mapping import Record, from_record
from adapters.native_headers import HEADERS_DROPPED, KEY_MAX
from adapters.property_names import PropertyNames
from bridge.engine.partitioner import murmur2
from bridge.migrate.kafka_topic_and_group_checks import TopicFacts
from bridge.migrate.report import Finding, Verdict

_MESSAGE_ID: Final = f"{BROKER_FIELD_PREFIX}messageId"
"""Header of every record that a bridge has written."""
_PREFIXES: Final = (BROKER_FIELD_PREFIX, PROPERTY_PREFIX, INTERNAL_PREFIX)
_NAMES_SHOWN: Final = 5


def check_records(topic: TopicFacts, body_max: int, properties: PropertyNames) -> Iterator[Finding]:
    """Yield findings about the sample. `body_max`: the largest body that the bridge accepts, bytes."""
    native = [record for record in topic.sample if all(name != _MESSAGE_ID for name, _ in record.headers)]
    bridged = len(topic.sample) - len(native)
    seen = f"{len(native)} native records, {bridged} of a bridge; the newest of each partition"
    if not native:
        advice = "Check again when native producers have written: the sample shows none of their keys and headers."
        yield Finding("sample", seen, Verdict.UNKNOWN, advice)
        return
    advice = "Nothing to do: the bridge's libraries could read and decompress them. Older records were not read."
    yield Finding("sample", seen, Verdict.WORKS, advice)
    yield check_partitioner(native, topic.partitions)
    yield from _check_keys(native)
    yield from _check_values(native, body_max)
    yield from _check_headers(native)
    if any(record.headers for record in native):
        yield _check_property_names(properties)


def _check_keys(native: Sequence[Record]) -> Iterator[Finding]:
    if null := sum(record.key is None for record in native):
        advice = "Nothing to do: such messages are spread over the partitions and have no order."
        yield Finding("null keys", f"{null} of {len(native)}", Verdict.WORKS, advice)
    if binary := sum(record.key is not None and not _is_text(record.key) for record in native):
        advice = "Leave their producers native, or let them write text: over HTTP such a key is a data URL."
        yield Finding("binary keys", f"{binary} of {len(native)}", Verdict.FAILS, advice)
    if long := sum(len(record.key or b"") > KEY_MAX for record in native):
        advice = f"Shorten them to {KEY_MAX} bytes: instead of a longer key, consumers get sha256: and its hash."
        yield Finding("long keys", f"{long} of {len(native)}", Verdict.DIFFERS, advice)


def _check_values(native: Sequence[Record], body_max: int) -> Iterator[Finding]:
    if null := sum(record.value is None for record in native):
        advice = "Leave the producers of tombstones native: HTTP cannot write one; consumers get an empty body."
        yield Finding("null values", f"{null} of {len(native)}", Verdict.FAILS, advice)
    if compressed := sum(is_gzip(record.value or b"") for record in native):
        advice = "Let consumers decompress them, as now: the bridge does not know that a native body is compressed."
        yield Finding("gzip bodies", f"{compressed} of {len(native)}", Verdict.DIFFERS, advice)
    largest = max(len(record.value or b"") for record in native)
    if largest > body_max:
        advice = "Raise limits.body above it: the bridge answers 413 to larger bodies."
        yield Finding("largest body", f"{largest} bytes, limits.body {body_max}", Verdict.FAILS, advice)


def _check_headers(native: Sequence[Record]) -> Iterator[Finding]:
    reserved, prefixed, repeated, binary = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    too_large = 0
    for record in native:
        names = Counter(name for name, _ in record.headers)
        repeated.update(name for name, count in names.items() if count > 1)
        reserved.update(name for name in names if name.startswith(INTERNAL_PREFIX))
        prefixed.update(name for name in names if name.startswith(_PREFIXES) and not name.startswith(INTERNAL_PREFIX))
        binary.update({name for name, value in record.headers if not _is_text(value)})
        too_large += HEADERS_DROPPED in from_record(record, record.topic).properties
    for subject, names, verdict, advice in (
        ("reserved headers", reserved, Verdict.FAILS, _RESERVED),
        ("headers with a bridge's prefix", prefixed, Verdict.DIFFERS, _PREFIXED),
        ("repeated headers", repeated, Verdict.DIFFERS, _REPEATED),
        ("binary headers", binary, Verdict.DIFFERS, _BINARY),
    ):
        if names:
            yield Finding(subject, _list_names(names), verdict, advice)
    if too_large:
        advice = "Make the headers smaller or leave the consumers native: the bridge omits headers beyond 40 KiB."
        yield Finding("headers too large", f"{too_large} records", Verdict.FAILS, advice)
    if not any(record.headers for record in native):
        yield Finding("headers", "none", Verdict.WORKS, "Nothing to do.")
    elif not (reserved or prefixed or repeated or binary or too_large):
        advice = "Nothing to do: each becomes a property of the same name; content-type and traceparent become fields."
        yield Finding("headers", "single, text", Verdict.WORKS, advice)


def _check_property_names(properties: PropertyNames) -> Finding:
    """Return how native consumers find the headers of producers that have moved to HTTP."""
    if properties == "plain":
        advice = "Nothing to do: HTTP producers write headers of the same names as native ones."
        return Finding("headers of HTTP producers", "properties=plain", Verdict.WORKS, advice)
    advice = "Set properties=plain if native consumers read headers: without it they find oms_p_… names."
    return Finding("headers of HTTP producers", "properties=prefixed", Verdict.DIFFERS, advice)


def _list_names(names: Counter[str]) -> str:
    shown = [f"{name or '(no name)'} ({count})" for name, count in names.most_common(_NAMES_SHOWN)]
    return ", ".join(shown) + (f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else "")


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


_RESERVED: Final = (
    f"Rename them in the native producers: the bridge reserves {INTERNAL_PREFIX}…, and consumers do not get them."
)
_PREFIXED: Final = (
    f"Rename them unless they are meant for the bridge: it reads {BROKER_FIELD_PREFIX}… as a field and"
    f" {PROPERTY_PREFIX}… as a property without the prefix."
)
_REPEATED: Final = "Let consumers read the earlier ones as name#1, name#2: the last one keeps the name."
_BINARY: Final = "Let consumers decode the data URL (data:;base64,…) that such a value becomes."


_SUBJECT: Final = "partitioner"
_FNV_PRIME: Final = 16_777_619
_FNV_BASIS: Final = 2_166_136_261
_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_BITS_NEEDED: Final = 20
"""Bits of evidence: the probability that so many keys match a hash by chance is one in a million."""


class _KeyHash(NamedTuple):
    name: str
    partition_of: Callable[[bytes, int], int]


def check_partitioner(sample: Sequence[Record], partitions: int) -> Finding:
    """Return whether the bridge puts a key into the same partition as the native producers."""
    placements = {(record.key, record.partition) for record in sample if record.key is not None}
    keys = {key for key, _ in placements}
    if partitions == 1:
        advice = "Nothing to do: one partition suits any hash; check the producers before you add partitions."
        return Finding(_SUBJECT, "one partition", Verdict.WORKS, advice)
    if not keys:
        advice = "Nothing to do while producers set no keys: records without a key may be in any partition."
        return Finding(_SUBJECT, "no keys in the sample", Verdict.UNKNOWN, advice)
    matches = {
        each.name: sum(each.partition_of(key, partitions) == partition for key, partition in placements)
        for each in _KEY_HASHES
    }
    seen = f"{matches[_MURMUR2]} of {len(placements)} sampled keys are in the partition that murmur2 selects"
    if matches[_MURMUR2] == len(placements):
        if len(keys) * log2(partitions) < _BITS_NEEDED:
            advice = f"Check the partitioner of the native producers: {len(keys)} keys are too few to be sure."
            return Finding(_SUBJECT, seen, Verdict.UNKNOWN, advice)
        advice = "Nothing to do: native producers and the bridge put a key into the same partition."
        return Finding(_SUBJECT, seen, Verdict.WORKS, advice)
    return Finding(_SUBJECT, f"{seen}{_other_hash(matches, len(placements))}", Verdict.FAILS, _USE_MURMUR2)


def _other_hash(matches: Mapping[str, int], total: int) -> str:
    name, count = max(matches.items(), key=lambda item: item[1])
    return f"; {count} match {name}" if name != _MURMUR2 and count * 10 >= total * 9 else ""


def _positive(number: int) -> int:
    return number & 0x7FFFFFFF


def _java(key: bytes, partitions: int) -> int:
    return _positive(murmur2(key)) % partitions


def _librdkafka(key: bytes, partitions: int) -> int:
    return crc32(key) % partitions


def _sarama(key: bytes, partitions: int) -> int:
    """Compute Go's hash/fnv 32a as a signed number, and the absolute value of its remainder."""
    value = _FNV_BASIS
    for byte in key:
        value = (value ^ byte) * _FNV_PRIME & _MASK
    signed = value - (value & _SIGN) * 2
    return abs(signed) % partitions


_MURMUR2: Final = "murmur2"
_KEY_HASHES: Final = (
    _KeyHash(_MURMUR2, _java),
    _KeyHash("crc32 (librdkafka's default)", _librdkafka),
    _KeyHash("FNV-1a (Sarama's default)", _sarama),
)
_USE_MURMUR2: Final = (
    "Give the native producers murmur2 first (librdkafka: partitioner=murmur2_random), or move all producers of a key"
    " at once: otherwise messages of one key are in two partitions and lose their order. Old records do not move."
)
