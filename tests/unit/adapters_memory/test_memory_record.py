"""Packing for memory and encoding for the journal give back exactly what they were given."""

import pytest
from hypothesis import given

from adapters.memory.record import BODY, decode, encode, pack, unpack
from bridge.message import Message
from tests.unit.strategies import broker_messages, messages


@given(messages() | broker_messages())
def test_round_trip(message: Message) -> None:
    record = pack(message)
    assert unpack(record) == message
    header = encode(record)
    assert header.isascii()
    assert decode(header, record[BODY]) == record


def test_absent_fields_take_no_space() -> None:
    assert encode(pack(Message("orders", b"body"))) == b'{"destination":"orders"}'


def test_a_field_of_a_later_version_is_refused() -> None:
    with pytest.raises(ValueError, match="colour"):
        decode(b'{"destination":"orders","colour":"red"}', b"")
