"""A publish in one piece is, byte for byte, what pika would write in three."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import BasicProperties, frame, spec

from adapters.amqp.messages import Outgoing
from adapters.amqp.publish_frames import Frames
from bridge.errors import HeadersTooLarge

FRAME_MAX = 4096
ROOM = FRAME_MAX - 8


def of_pika(channel: int, outgoing: Outgoing) -> bytes:
    method = spec.Basic.Publish(exchange=outgoing.exchange, routing_key=outgoing.routing_key, mandatory=True)
    body = outgoing.body
    parts: list[Any] = [frame.Method(channel, method), frame.Header(channel, len(body), outgoing.properties)]
    parts += [frame.Body(channel, body[start : start + ROOM]) for start in range(0, len(body), ROOM)]
    return b"".join(part.marshal() for part in parts)


@given(
    st.integers(1, 65535),
    st.text(max_size=60),
    st.text(max_size=60),
    st.sampled_from([0, 1, ROOM - 1, ROOM, ROOM + 1, 2 * ROOM, 3 * ROOM + 5]),
)
def test_frames_are_those_of_pika(channel: int, exchange: str, routing_key: str, size: int) -> None:
    properties = BasicProperties(message_id="m", delivery_mode=2, headers={"a": "b"})
    outgoing = Outgoing(exchange, routing_key, properties, bytes(range(251)) * (size // 251 + 1))
    outgoing = outgoing._replace(body=outgoing.body[:size])
    frames = Frames(channel, FRAME_MAX)
    for _ in range(2):  # the second time from memory
        assert b"".join(frames.of(outgoing)) == of_pika(channel, outgoing)


def test_a_header_fills_a_frame_and_no_more() -> None:
    frames = Frames(1, FRAME_MAX)
    empty = len(b"".join(BasicProperties(headers={"h": ""}).encode())) + 12
    fits = BasicProperties(headers={"h": "x" * (ROOM - empty)})
    assert len(frames.of(Outgoing("e", "k", fits, b""))) == 1
    with pytest.raises(HeadersTooLarge):
        frames.of(Outgoing("e", "k", BasicProperties(headers={"h": "x" * (ROOM - empty + 1)}), b""))


def test_routing_keys_without_number_are_not_all_remembered() -> None:
    frames = Frames(1, FRAME_MAX)
    for number in range(10_000):
        frames.of(Outgoing("e", str(number), BasicProperties(), b""))
    assert len(frames._methods) <= 4096
