"""Example requests of the data port, as curl commands, by the operation that they call. A test sends each of them."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Example(NamedTuple):
    """One request."""

    title: str
    command: str


EXAMPLES: Final[Mapping[str, tuple[Example, ...]]] = {
    "produce": (
        Example(
            "One message: the fields and properties are headers, the body is the payload",
            """\
curl -i http://localhost:8080/v1/messages \\
  -H 'x-oms-version: 1.0.0' \\
  -H 'x-oms-h-destination: orders' \\
  -H 'x-oms-h-messagekey: customer-12' \\
  -H 'x-oms-p-region: eu' \\
  -H 'content-type: application/json' \\
  -d '{"id": 7}'""",
        ),
        Example(
            "A batch of two messages in JSON; data is the body in base64",
            """\
curl http://localhost:8080/v1/messages \\
  -H 'x-oms-version: 1.0.0' \\
  -H 'content-type: application/json' \\
  -d '[{"header": {"destination": "orders"}, "data": "eyJpZCI6IDh9"},
       {"header": {"destination": "orders"}, "data": "eyJpZCI6IDl9"}]'""",
        ),
    ),
    "produceByUrl": (
        Example(
            "The body is the payload, the fields are query parameters; no header is needed",
            """\
curl -i 'http://localhost:8080/v1/destinations/alerts/messages?key=disk&delay=5s' \\
  -d '{"disk": "full"}'""",
        ),
    ),
    "produceStream": (
        Example(
            "A message on each line; the response has a line for each while more are sent, for example from a pipe",
            """\
curl -N http://localhost:8080/v1/stream \
  -H 'x-oms-version: 1.0.0' \
  -H 'content-type: application/x-ndjson' \
  -d '{"header": {"destination": "orders"}, "data": "eyJpZCI6IDEwfQ=="}'""",
        ),
    ),
    "pull": (
        Example(
            "One message of the group billing, leased until it is acknowledged; waits up to 5 s for it",
            """\
curl -i http://localhost:8080/v1/messages \\
  -G -H 'x-oms-version: 1.0.0' \\
  -d source=orders -d consumerid=billing \\
  -d ack=true -d waitmills=5000""",
        ),
    ),
    "ack": (
        Example(
            "RECEIPT: the value of x-oms-receipt in the reply to the pull",
            """\
curl -i -X POST http://localhost:8080/v1/ack \\
  -H 'x-oms-version: 1.0.0' \\
  -H 'x-oms-receipt: RECEIPT'""",
        ),
    ),
    "push": (
        Example(
            "All messages of the group audit, one line of JSON each, until the client ends the stream",
            """\
curl -N http://localhost:8080/v1/push \\
  -G -H 'x-oms-version: 1.0.0' \\
  -H 'accept: application/x-ndjson' \\
  -d source=orders -d consumerid=audit""",
        ),
    ),
    "register": (
        Example(
            "Post the messages of the group shop to a URL that callbacks.targets allows",
            """\
curl -i -X POST http://localhost:8080/v1/push \\
  -H 'x-oms-version: 1.0.0' \\
  -H 'x-oms-source: orders' \\
  -H 'x-oms-consumerid: shop' \\
  -H 'x-oms-callbackurl: https://shop.example/orders'""",
        ),
        Example(
            "The same in batches of up to 100 messages, as arrays of JSON",
            """\
curl -i -X POST http://localhost:8080/v1/push \\
  -H 'x-oms-version: 1.0.0' \\
  -H 'x-oms-source: orders' \\
  -H 'x-oms-consumerid: shop' \\
  -H 'x-oms-callbackurl: https://shop.example/orders' \\
  -H 'x-oms-maxmessages: 100' \\
  -H 'accept: application/json'""",
        ),
    ),
    "callbacks": (Example("Every registration with its state", "curl http://localhost:8080/v1/callbacks"),),
}
