"""Several messages in one callback: the body of the POST, and the results in the endpoint's response."""

import json
import secrets
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from bridge.message import Message
from bridge.wire import jsonform, multipart
from bridge.wire.cloudevents import Mode, encode_json
from bridge.wire.header_text import EVENTS, choose
from bridge.wire.stream_framings import FRAMINGS, Framing, MultipartFraming, StreamMessage

Item = TypeVar("Item")


class BatchSplitter(Generic[Item]):
    """Splits items in order into batches of at most `most` items and `max_bytes` bytes, or one larger item."""

    def __init__(self, most: int, max_bytes: int) -> None:
        self._most = most
        self._max_bytes = max_bytes
        self._batch: list[Item] = []
        self._bytes = 0

    def add(self, item: Item, size: int) -> list[Item]:
        """Add an item of `size` bytes. Returns the batch before it if that is complete, else an empty list."""
        complete: list[Item] = []
        if len(self._batch) == self._most or self._bytes + size > self._max_bytes:
            complete = self.rest()
        self._batch.append(item)
        self._bytes += size
        return complete

    def rest(self) -> list[Item]:
        """Return the last batch; an empty list if there is none."""
        batch, self._batch, self._bytes = self._batch, [], 0
        return batch


_STATUS_MIN: Final = 100
_STATUS_MAX: Final = 599


class Result(NamedTuple):
    """The endpoint's result for one message of a batch."""

    status: int
    retry_after: str | None
    """Seconds, as the header `retry-after` has them."""


def _in_framing(build: Callable[[bytes], Framing]) -> Callable[[Sequence[Message]], tuple[bytes, bytes]]:
    """Return an encoder that writes a batch as a push stream does, without its end."""

    def encode(messages: Sequence[Message]) -> tuple[bytes, bytes]:
        framing = build(secrets.token_hex(16).encode("ascii"))  # 128 random bits occur in no message
        body = framing.messages([("", StreamMessage(message, None, 0)) for message in messages])
        closing = multipart.CLOSING if isinstance(framing, MultipartFraming) else b""
        return framing.content_type, framing.opening + body + closing

    return encode


def _json(messages: Sequence[Message]) -> tuple[bytes, bytes]:
    return b"application/json", jsonform.encode_array(messages)


def _events(messages: Sequence[Message]) -> tuple[bytes, bytes]:
    return Mode.BATCHED.value.encode("ascii"), b"[%b]" % b",".join(map(encode_json, messages))


_ENCODERS: Final[dict[str, Callable[[Sequence[Message]], tuple[bytes, bytes]]]] = {
    **{name: _in_framing(FRAMINGS[name]) for name in ("multipart/mixed", "application/x-ndjson")},
    "application/json": _json,
    **{name: _in_framing(FRAMINGS[name]) for name in (f"multipart/mixed{EVENTS}", f"application/x-ndjson{EVENTS}")},
    Mode.BATCHED.value: _events,
}
FORMS: Final = tuple(_ENCODERS)
"""The media types of a batch; the first one is the default."""


def choose_form(accept: bytes | None) -> str:
    """Return the form that an `accept` header prefers. Raises `NotAcceptable`."""
    return choose(accept, FORMS, "a batch of a callback")


def encode_batch(messages: Sequence[Message], form: str) -> tuple[bytes, bytes]:
    """Return the content type and the body of a batch. `form` is one of `FORMS`."""
    return _ENCODERS[form](messages)


def decode_results(body: bytes | None, count: int, *, required: bool) -> list[Result] | None:
    """Return the results of `count` messages from a JSON body; None if the body is something else than an array.

    Raises `ValueError`, whose text continues a sentence about the response, if the array is not a list of results, or
    if there is none although it is `required`.
    """
    try:
        results = None if body is None else json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("with a body that is not JSON or is longer than 64 KiB") from None
    if not isinstance(results, list):
        if required:
            raise ValueError("without an array of results")
        return None
    if len(results) != count:
        raise ValueError(f"with {len(results)} results for {count} messages")
    return [_decode_result(item) for item in results]


def _decode_result(item: object) -> Result:
    if isinstance(item, dict):
        status, retry_after = item.get("status"), item.get("retryAfter")
        is_pause = retry_after is None or (type(retry_after) is int and retry_after >= 0)
        if type(status) is int and _STATUS_MIN <= status <= _STATUS_MAX and is_pause:
            return Result(status, None if retry_after is None else str(retry_after))
    raise ValueError("with a result that is not an object with a status")
