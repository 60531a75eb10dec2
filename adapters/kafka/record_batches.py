"""Record batches as Kafka stores them, from any producer: a header name that is not UTF-8 does not stop the reader.

kafka-python 3.0.12 raises an error for such a name, at every attempt to read the record. Here the name is read with
U+FFFD in place of the bytes that are no text, as Kafka's own client reads it.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from kafka.errors import CorruptRecordError
from kafka.record import memory_records
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch
from kafka.record.legacy_records import LegacyRecordBatch
from kafka.record.util import decode_varint

_LENGTH_AT: Final = 8
"""Where a batch has its length, 4 bytes, which counts what follows them."""
_LENGTH_END: Final = 12
_MAGIC_AT: Final = 16
_LAST_AT: Final = 23
"""Where a batch has the difference of its last offset from its first, 4 bytes."""
_NUMBERED: Final = 2
"""The format whose header has the offsets, since Kafka 0.11."""


class TolerantRecordBatch(DefaultRecordBatch):  # type: ignore[misc] # has no types
    """A batch of the current format."""

    _pos: int

    def records_between(self, start: int, end: int) -> Iterator[Any]:
        """Yield the records with `start` <= offset < `end`, those that are still there.

        Records before the range are skipped by their lengths if compaction has left no holes in the batch.
        """
        records = iter(self)  # decompresses it
        if self.base_offset < start and self.records_count > self.last_offset_delta:
            self._skip(start - self.base_offset)
        for record in records:
            if start <= record.offset < end:
                yield record
            if record.offset >= end - 1:
                return  # without decoding the next one

    def _skip(self, count: int) -> None:
        for _ in range(min(count, self.records_count)):
            length, start = decode_varint(self._buffer, self._pos)
            self._pos = start + length
        self._next_record_index = count

    def _read_msg(self, *given: Any) -> Any:  # noqa: ANN401 - the library's
        try:
            return super()._read_msg(*given)
        except UnicodeDecodeError:
            return self._read_with_replaced_names()

    def _read_with_replaced_names(self) -> DefaultRecord:
        """Read a record, https://kafka.apache.org/documentation/#record, with names that may be no text."""
        buffer = self._buffer
        length, at = decode_varint(buffer, self._pos)
        _, at = decode_varint(buffer, at)  # attributes, which are unused
        time_delta, at = decode_varint(buffer, at)
        offset_delta, at = decode_varint(buffer, at)
        key, at = _read_bytes(buffer, at)
        value, at = _read_bytes(buffer, at)
        count, at = decode_varint(buffer, at)
        headers = []
        for _ in range(count):
            name, at = _read_bytes(buffer, at)
            content, at = _read_bytes(buffer, at)
            headers.append(((name or b"").decode("utf-8", "replace"), content))
        self._pos = at
        at_append = self.timestamp_type == self.LOG_APPEND_TIME
        timestamp = self.max_timestamp if at_append else self.first_timestamp + time_delta
        return DefaultRecord(
            length, self.base_offset + offset_delta, timestamp, self.timestamp_type, key, value, headers
        )


def _read_bytes(buffer: bytearray, at: int) -> tuple[bytes | None, int]:
    length, at = decode_varint(buffer, at)
    return (None, at) if length < 0 else (bytes(buffer[at : at + length]), at + length)


class Batch(NamedTuple):
    """One batch of a fetch, not decoded yet."""

    raw: memoryview
    base: int
    """Its first offset; of the formats before Kafka 0.11 its last."""
    next: int
    """The offset behind it."""

    @property
    def is_numbered(self) -> bool:
        """Whether it has the current format."""
        return self.raw[_MAGIC_AT] == _NUMBERED

    def decode(self, start: int, end: int) -> Iterator[Any]:
        """Yield the records with `start` <= offset < `end`. Raises `CorruptRecordError`, or what a codec raises."""
        if self.is_numbered:
            batch = TolerantRecordBatch(self.raw)
            records = batch.records_between(start, end)
        else:
            batch = LegacyRecordBatch(self.raw, self.raw[_MAGIC_AT])
            records = (record for record in batch if start <= record.offset < end)
        if not batch.validate_crc():
            raise CorruptRecordError("the checksum is wrong")
        yield from records


def split_batches(fetched: memoryview) -> Iterator[Batch]:
    """Yield the whole batches of a fetch; a broker may cut the last one off."""
    at = 0
    while at + _MAGIC_AT < len(fetched):
        stop = at + _LENGTH_END + int.from_bytes(fetched[at + _LENGTH_AT : at + _LENGTH_END])
        if stop > len(fetched):
            return
        raw = fetched[at:stop]
        base = int.from_bytes(raw[:_LENGTH_AT])
        last = base + int.from_bytes(raw[_LAST_AT : _LAST_AT + 4]) if raw[_MAGIC_AT] == _NUMBERED else base
        yield Batch(raw, base, last + 1)
        at = stop


def split_committed(fetched: memoryview, aborted: Iterable[tuple[int, int]]) -> Iterator[tuple[Batch, bool]]:
    """Yield the batches of a fetch, and whether each holds records that a `read_committed` consumer gets.

    `aborted`: producer id and first offset of each aborted transaction that the broker names in its answer.
    """
    to_come = deque(sorted(aborted, key=lambda transaction: transaction[1]))
    aborting: set[int] = set()
    for batch in split_batches(fetched):
        if not batch.is_numbered:
            yield batch, True
            continue
        header = TolerantRecordBatch(batch.raw)
        while to_come and to_come[0][1] < batch.next:
            aborting.add(to_come.popleft()[0])
        if header.is_control_batch:  # the mark at the end of a transaction
            aborting.discard(header.producer_id)
        yield batch, not (header.is_control_batch or (header.is_transactional and header.producer_id in aborting))


memory_records.DefaultRecordBatch = TolerantRecordBatch  # the consumers of groups read the same records
