"""Over which message a channel was closed, as far as the broker's text says."""

import pytest
from pika import BasicProperties
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from adapters.amqp.messages import Outgoing
from adapters.base import Stored
from adapters.rabbitmq.publish.confirm_channel import PendingPublish, _cause_of

GONE = "NOT_FOUND - no exchange 'a' in vhost '/'"
FORBIDDEN = "ACCESS_REFUSED - access to exchange 'a' in vhost '/' refused for user 'u'"
LARGE = "PRECONDITION_FAILED - message size 11 is larger than configured max size 10"


async def test_cause_ofs(subtests: pytest.Subtests) -> None:
    """Sizes of bodies; numbers begin with 5."""
    cases: list[tuple[list[int], BaseException, int | None]] = [
        ([1, 1, 1], ChannelClosedByBroker(404, GONE), 7),  # it may be any: the last one is certain
        ([1, 1], ChannelClosedByBroker(403, FORBIDDEN), 6),
        ([1], ChannelClosedByBroker(404, GONE), 5),
        ([1, 11, 10], ChannelClosedByBroker(406, LARGE), 6),
        ([11, 1, 12, 10], ChannelClosedByBroker(406, LARGE), 7),
        ([1, 10], ChannelClosedByBroker(406, LARGE), None),
        ([1, 2], ChannelClosedByBroker(406, "PRECONDITION_FAILED - invalid expiration"), None),
        ([1], ChannelClosedByBroker(406, "PRECONDITION_FAILED - invalid expiration"), 5),  # there is no other
        ([], ChannelClosedByBroker(404, GONE), None),
        ([1], ConnectionClosedByBroker(320, GONE), None),
    ]
    for sent, reason, cause in cases:
        with subtests.test(sent=sent, reason=reason, cause=cause):
            unconfirmed = {
                number: PendingPublish(Outgoing("a", "p0", BasicProperties(), b"x" * size), stored=Stored(None, None))
                for number, size in enumerate(sent, 5)
            }
            assert _cause_of(unconfirmed, reason) == cause
