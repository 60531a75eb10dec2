"""How often a range that is being read acknowledges what was delivered."""

from types import SimpleNamespace
from typing import Any, cast

from adapters.amqp.messages import Arrival
from adapters.rabbitmq.mapping import to_properties
from bridge.message import Message
from bridge.mirror.sources.rabbitmq.catalogue import Stream
from bridge.mirror.sources.rabbitmq.source import StreamRangeReader
from bridge.mirror.sources.ranges import Split


def test_one_acknowledgement_for_500_deliveries() -> None:
    acknowledged: list[int] = []
    raw = SimpleNamespace(is_open=True, basic_ack=lambda tag, multiple: acknowledged.append(tag if multiple else -1))
    reading = StreamRangeReader(cast("Any", None), Split("orders.log/1", 0, 1_000_000), Stream("orders", 1))
    reading._channel = cast("Any", SimpleNamespace(open=True, raw=raw))
    properties, body = to_properties(Message("orders", b"x", message_id="1", born_timestamp=1, store_timestamp=1))
    for offset in range(2_000):
        reading._take(offset, Arrival(offset + 1, False, "p0", properties, body))
    assert acknowledged == [500, 1_000, 1_500, 2_000]
