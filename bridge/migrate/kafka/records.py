"""What the newest records of a topic mean: what a bridge would make of them, by the adapter's own mapping. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from adapters.fields import FIELD_PREFIX, INTERNAL_PREFIX, PROPERTY_PREFIX
from adapters.foreign import KEY_MAX, LEFT_OUT
from adapters.kafka.mapping import from_record
from adapters.kafka.record import Record
from adapters.packing import is_gzip
from bridge.migrate.finding import Finding, Verdict
from bridge.migrate.kafka import hashing
from bridge.migrate.kafka.facts import Topic

_OURS: Final = f"{FIELD_PREFIX}messageId"
_PREFIXES: Final = (FIELD_PREFIX, PROPERTY_PREFIX, INTERNAL_PREFIX)
_SHOWN: Final = 5


def judge(topic: Topic, body_max: int) -> Iterator[Finding]:
    """Yield findings for the sample. `body_max`: the largest body that the bridge takes, bytes."""
    native = [record for record in topic.sample if all(name != _OURS for name, _ in record.headers)]
    bridged = len(topic.sample) - len(native)
    seen = f"{len(native)} native records, {bridged} of a bridge; the newest of each partition"
    if not native:
        said = "Look again when native producers have written: keys, values and headers were not seen."
        yield Finding("sample", seen, Verdict.UNKNOWN, said)
        return
    said = "Nothing to do: the bridge's own libraries have read and decompressed them. Older ones were not looked at."
    yield Finding("sample", seen, Verdict.WORKS, said)
    yield hashing.judge(native, topic.partitions)
    yield from _keys(native)
    yield from _values(native, body_max)
    yield from _headers(native)


def _keys(native: Sequence[Record]) -> Iterator[Finding]:
    without = sum(record.key is None for record in native)
    if without:
        said = "Nothing to do: the partitions take turns; such messages have no order among each other."
        yield Finding("null keys", f"{without} of {len(native)}", Verdict.WORKS, said)
    binary = sum(record.key is not None and not _is_text(record.key) for record in native)
    if binary:
        said = "Leave their producers native or have them write text: HTTP has no such key; consumers see a data URL."
        yield Finding("binary keys", f"{binary} of {len(native)}", Verdict.FAILS, said)
    long = sum(len(record.key or b"") > KEY_MAX for record in native)
    if long:
        said = f"Shorten them: beyond {KEY_MAX} bytes consumers see sha256: and the hash in place of the key."
        yield Finding("long keys", f"{long} of {len(native)}", Verdict.DIFFERS, said)


def _values(native: Sequence[Record], body_max: int) -> Iterator[Finding]:
    null = sum(record.value is None for record in native)
    if null:
        said = "Leave the producers of tombstones native: HTTP cannot write one; consumers see an empty body."
        yield Finding("null values", f"{null} of {len(native)}", Verdict.FAILS, said)
    packed = sum(is_gzip(record.value or b"") for record in native)
    if packed:
        said = "Consumers go on unpacking it themselves: the bridge does not know that a native body is compressed."
        yield Finding("bodies in gzip", f"{packed} of {len(native)}", Verdict.DIFFERS, said)
    largest = max(len(record.value or b"") for record in native)
    if largest > body_max:
        said = "Raise limits.body above it: a bridge answers 413 to a producer of such a body."
        yield Finding("largest body", f"{largest} bytes, limits.body {body_max}", Verdict.FAILS, said)


def _headers(native: Sequence[Record]) -> Iterator[Finding]:
    dropped, taken, repeated, binary = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    beyond = 0
    for record in native:
        names = Counter(name for name, _ in record.headers)
        repeated.update(name for name, count in names.items() if count > 1)
        dropped.update(name for name in names if name.startswith(INTERNAL_PREFIX))
        taken.update(name for name in names if name.startswith(_PREFIXES) and not name.startswith(INTERNAL_PREFIX))
        binary.update({name for name, value in record.headers if not _is_text(value)})
        beyond += LEFT_OUT in from_record(record, record.topic).properties
    for subject, names, verdict, said in (
        ("headers of the bridge's", dropped, Verdict.FAILS, _DROPPED),
        ("headers like the bridge's", taken, Verdict.DIFFERS, _TAKEN),
        ("repeated headers", repeated, Verdict.DIFFERS, _REPEATED),
        ("binary headers", binary, Verdict.DIFFERS, _BINARY),
    ):
        if names:
            yield Finding(subject, _listed(names), verdict, said)
    if beyond:
        said = "Make the headers smaller or leave the consumers native: beyond 40 KiB of them the rest is left out."
        yield Finding("headers too large", f"{beyond} records", Verdict.FAILS, said)
    if not any(record.headers for record in native):
        yield Finding("headers", "none", Verdict.WORKS, "Nothing to do.")
    elif not (dropped or taken or repeated or binary or beyond):
        said = "Nothing to do: each becomes a property of its name, and content-type and traceparent what they are."
        yield Finding("headers", "single, text", Verdict.WORKS, said)


def _listed(names: Counter[str]) -> str:
    shown = [f"{name or '(no name)'} ({count})" for name, count in names.most_common(_SHOWN)]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


_DROPPED: Final = (
    f"Rename them in the native producers: {INTERNAL_PREFIX}… is the bridge's own, and no consumer sees it."
)
_TAKEN: Final = (
    f"Rename them unless they mean what the bridge means: {FIELD_PREFIX}… is read as a field, {PROPERTY_PREFIX}… as a"
    " property without the prefix."
)
_REPEATED: Final = "Let consumers read name#1, name#2 for the earlier ones: the last one keeps the name."
_BINARY: Final = "Let consumers decode the data URL (data:;base64,…) that such a value becomes."
