"""Over which message a channel was closed, as far as the broker's text says."""

import pytest
from pika import BasicProperties
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from adapters.amqp.messages import Outgoing
from adapters.base import Stored
from adapters.rabbitmq.publish.confirms import _culprit
from adapters.rabbitmq.publish.pending import PendingPublish

LONG = "x" * 250
GONE = "NOT_FOUND - no exchange '{}' in vhost '/'"
FORBIDDEN = "ACCESS_REFUSED - access to exchange '{}' in vhost '/' refused for user 'u'"
TOPIC = "ACCESS_REFUSED - access to topic 'p0' in exchange '{}' in vhost '/' refused for user 'u'"
LARGE = "PRECONDITION_FAILED - message size 11 is larger than configured max size 10"


def closed(code: int, text: str) -> ChannelClosedByBroker:
    return ChannelClosedByBroker(code, text if len(text) <= 255 else f"{text[:252]}...")


async def test_culprits(subtests: pytest.Subtests) -> None:
    """Bodies are as long as the names of their exchanges; numbers begin with 5."""
    cases: list[tuple[list[str], BaseException, int | None]] = [
        (["a", "b", "a"], closed(404, GONE.format("b")), 6),
        (["a", "b", "a", "b", "a"], closed(404, GONE.format("b")), 8),  # it may be either: the later one is certain
        (["a", "b", "a"], closed(403, FORBIDDEN.format("b")), 6),
        (["a", "b", "a"], closed(403, TOPIC.format("b")), 6),
        (["a", "it's' in vhost", "a"], closed(404, GONE.format("it's' in vhost")), 6),
        (["a", LONG, "a"], closed(404, GONE.format(LONG)), 6),  # the broker's text is cut
        (["a", "b", "a"], closed(404, GONE.format("c")), None),
        (["a"], closed(404, GONE.format("c")), 5),  # there is no other
        (["a", "b" * 11, "a"], closed(406, LARGE), 6),
        (["a", "b"], closed(406, "PRECONDITION_FAILED - invalid expiration"), None),
        (["a"], closed(406, "PRECONDITION_FAILED - invalid expiration"), 5),
        ([], closed(404, GONE.format("a")), None),
        (["a"], ConnectionClosedByBroker(320, GONE.format("a")), None),
    ]
    for sent, reason, culprit in cases:
        with subtests.test(sent=sent, reason=reason, culprit=culprit):
            unconfirmed = {
                number: PendingPublish(
                    Outgoing(name, "p0", BasicProperties(), name.encode()), mandatory=True, stored=Stored(None, None)
                )
                for number, name in enumerate(sent, 5)
            }
            assert _culprit(unconfirmed, reason) == culprit
