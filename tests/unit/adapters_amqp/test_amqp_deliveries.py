"""The connection's own decoder of deliveries, however the frames are cut into reads."""

from collections.abc import Sequence
from typing import Any

import pika
import pytest
from pika import frame, spec

from adapters.amqp.connection import Connection
from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties

BODIES = (b"", b"x", b"y" * 300)
FRAME = 100
"""Bytes of a body's frame: the last body has several."""


def frames(channel: int, tag: int, body: bytes) -> bytes:
    deliver = spec.Basic.Deliver(f"consumer {tag}", tag, bool(tag % 2), "exchange", f"key.{tag}")
    encoded = Properties(message_id=f"id-{tag}", headers={"number": tag})
    pieces = [body[at : at + FRAME] for at in range(0, len(body), FRAME)]
    parts: Sequence[Any] = [
        frame.Method(channel, deliver),
        frame.Header(channel, len(body), encoded),
        *(frame.Body(channel, piece) for piece in pieces),
    ]
    return b"".join(part.marshal() for part in parts)


def split(data: bytes) -> list[bytes]:
    """Return the frames."""
    found = []
    while data:
        end = 8 + int.from_bytes(data[3:7])
        found.append(data[:end])
        data = data[end:]
    return found


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
async def test_deliveries_arrive_whole_and_in_order(size: int) -> None:
    connection = Connection(pika.ConnectionParameters())
    found: dict[int, list[tuple[str, Arrival]]] = {1: [], 2: []}
    for channel, deliveries in found.items():
        connection.delivered[channel] = lambda consumer, arrival, to=deliveries: to.append((consumer, arrival))  # type: ignore[misc]
    data = b"".join(frames(1 + tag % 2, tag, body) for tag, body in enumerate(BODIES * 3))
    for at in range(0, len(data), size):
        connection.data_received(data[at : at + size])
    for channel, deliveries in found.items():
        tags = [tag for tag in range(9) if 1 + tag % 2 == channel]
        assert [(consumer, each.tag, each.redelivered, each.routing_key) for consumer, each in deliveries] == [
            (f"consumer {tag}", tag, bool(tag % 2), f"key.{tag}") for tag in tags
        ]
        assert [each.body for _, each in deliveries] == [BODIES[tag % 3] for tag in tags]
        assert [each.properties.headers for _, each in deliveries] == [{"number": tag} for tag in tags]
    connection.forget(1)
    assert set(connection.delivered) == {2}


def test_frames_of_two_channels_may_alternate() -> None:
    connection = Connection.__new__(Connection)
    found: list[tuple[int, bytes]] = []
    connection._unread, connection.bytes_received = b"", 0
    connection.confirmed, connection._incomplete = {}, {}
    connection.delivered = {
        channel: lambda _, arrival, channel=channel: found.append((channel, arrival.body))  # type: ignore[misc]
        for channel in (1, 2)
    }
    pairs = zip(split(frames(1, 1, BODIES[2])), split(frames(2, 2, BODIES[2])), strict=True)
    connection.data_received(b"".join(first + second for first, second in pairs))
    assert found == [(1, BODIES[2]), (2, BODIES[2])]
    connection.data_received(frames(2, 3, BODIES[1]) + frames(1, 4, BODIES[0]))
    assert found[2:] == [(2, BODIES[1]), (1, BODIES[0])]
