"""Producers of batches: every result line of an answer says what became of one message.

A batch holds the next message of each key, so no two of one key: each key stays in order also when a batch is stored in
part. What was not answered "stored" is sent again with the next batch, under the same id.
"""

import asyncio
import base64
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import aiohttp

from tests.ledger.book import Answer, Book
from tests.ledger.client import Reply, Where, ask
from tests.ledger.producers import PAUSES, SIZES, Lane

FREE: Final = 8
"""Messages of each lane without a key in one batch: they have no order to keep."""
_BOUNDARY: Final = "ledger-batch-7f31c0d2"
"""No body holds it: they are a name and random bytes."""


class _Item(NamedTuple):
    lane: Lane
    name: str
    key: str | None
    sequence: int
    body: bytes


async def produce_batches(book: Book, client: aiohttp.ClientSession, where: Where, lanes: Sequence[Lane]) -> None:
    """Send the messages of several lanes in batches of both forms; return when all of them are stored."""
    draw = random.Random(lanes[0].number)  # noqa: S311 - no secret
    left = {lane: _items(lane, draw) for lane in lanes}
    batch = [item for lane, items in left.items() for item in _next(lane, items)]
    tries = 0
    while batch:
        url = await where.url()
        attempts = [book.attempt(item.name, item.key, item.sequence, item.body) for item in batch]
        answers = await _send(client, url, batch, as_json=draw.random() < 0.5)
        for attempt, answer in zip(attempts, answers, strict=True):
            book.answered(attempt, answer)
        if Answer.STORED not in answers:
            await asyncio.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
            tries += 1
            continue
        tries = 0
        again = [item for item, answer in zip(batch, answers, strict=True) if answer is not Answer.STORED]
        waiting = {item.lane for item in again}
        batch = again + [item for lane in lanes if lane not in waiting for item in _next(lane, left[lane])]


def results_of(reply: Reply, names: Sequence[str]) -> list[Answer]:
    """Return what the profile says that the answer to a batch means for each of its messages."""
    if reply.status in {-1, 503}:
        return [Answer.NOT_STORED] * len(names)
    if reply.status not in {200, 207}:
        return [Answer.UNKNOWN] * len(names)
    results = json.loads(reply.body)
    assert len(results) == len(names), f"{len(results)} results for {len(names)} messages: {reply}"
    answers = [_answer_of(result, name) for result, name in zip(results, names, strict=True)]
    whole = all(answer is Answer.STORED for answer in answers)
    assert (reply.status == 200) == whole, f"207 says that some message was not stored: {reply}"
    return answers


def _answer_of(result: dict[str, Any], name: str) -> Answer:
    status = result["status"]
    if status == 200:
        assert result["messageId"] == name, f"the result of another message: {result}, not {name}"
        return Answer.STORED
    assert status in {503, 504}, result
    assert result["retrySafe"] is (status == 503), result
    return Answer.NOT_STORED if status == 503 else Answer.UNKNOWN


def _items(lane: Lane, draw: random.Random) -> Iterator[_Item]:
    key = f"key {lane.number}" if lane.keyed else None
    for sequence in range(lane.messages):
        name = f"{lane.destination}-{lane.number}-{sequence}"
        yield _Item(lane, name, key, sequence, f"{name} ".encode() + draw.randbytes(draw.choice(SIZES)))


def _next(lane: Lane, items: Iterator[_Item]) -> list[_Item]:
    return list(islice(items, 1 if lane.keyed else FREE))


async def _send(client: aiohttp.ClientSession, url: str, batch: Sequence[_Item], *, as_json: bool) -> list[Answer]:
    kind, body = _in_json(batch) if as_json else _in_parts(batch)
    reply = await ask(client, "POST", f"{url}/v1/messages", {"content-type": kind}, body)
    return results_of(reply, [item.name for item in batch])


def _in_json(batch: Iterable[_Item]) -> tuple[str, bytes]:
    messages = [
        {
            "header": {"destination": item.lane.destination, "messageId": item.name},
            "extensionHeader": {} if item.key is None else {"messageKey": item.key},
            "data": base64.b64encode(item.body).decode("ascii"),
        }
        for item in batch
    ]
    return "application/json", json.dumps(messages).encode()


def _in_parts(batch: Iterable[_Item]) -> tuple[str, bytes]:
    parts = []
    for item in batch:
        headers = {"x-oms-h-destination": item.lane.destination, "x-oms-h-messageid": item.name}
        if item.key is not None:
            headers["x-oms-h-messagekey"] = item.key
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        parts.append(f"--{_BOUNDARY}\r\n{head}\r\n".encode() + item.body + b"\r\n")
    return f"multipart/mixed; boundary={_BOUNDARY}", b"".join(parts) + f"--{_BOUNDARY}--".encode()
