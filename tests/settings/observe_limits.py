"""What a client sees of `limits`, `timeouts` and `binding`."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

import httpx

from tests.conformance.frames import Frames
from tests.http.asking import producing
from tests.http.streaming import Streams
from tests.settings.bridge_client import PATIENCE, BridgeClient, code, fresh, wait_until

_STALLED: Final = 100
_BODY: Final = 16 << 10


def largest_body(client: BridgeClient) -> object:
    """Produce 200,000 bytes."""
    return code(client.produce(fresh(), bytes(200_000)))


def larger_body(client: BridgeClient) -> object:
    """Produce five MiB and pull them."""
    target, body = fresh(), bytes(5 << 20)
    if (answer := client.produce(target, body)).status_code != httpx.codes.OK:
        return code(answer)
    return "whole" if client.pull(target).content == body else "changed"


def announced_body(client: BridgeClient) -> object:
    """Read the capabilities."""
    return client.capabilities()["body"]


def retry_after_a_pause(client: BridgeClient) -> object:
    """Produce a message twice, with a pause of 0.5 s."""
    target = fresh()
    client.store(target, messageid="m")
    time.sleep(0.5)
    return _retried(client, target)


def retry_after_many(client: BridgeClient) -> object:
    """Produce a message twice, with 3,000 others in between."""
    target = fresh()
    client.store(target, messageid="m")
    for number in range(6):
        batch = [{"header": {"destination": target, "messageId": f"{number}-{each}"}} for each in range(500)]
        headers = {"x-oms-version": "1.0.0", "content-type": "application/json"}
        answer = client.http.post("/v1/messages", headers=headers, content=json.dumps(batch))
        assert answer.status_code == httpx.codes.OK, answer.text
    return _retried(client, target)


def _retried(client: BridgeClient, target: str) -> str:
    answer = client.produce(target, messageid="m")
    assert answer.status_code == httpx.codes.OK, answer.text
    return "duplicate" if "x-oms-duplicate" in answer.headers else "stored again"


def headers_of_3000(client: BridgeClient) -> object:
    """Produce with 3,000 bytes of headers: the bridge itself judges."""
    return code(client.produce(fresh(), messagekey="k" * 3000))


def headers_of_25000(client: BridgeClient) -> object:
    """Produce with 25,000 bytes of headers: beyond twice the limit the server below the bridge refuses."""
    headers = {f"p-{number}": "v" * 2500 for number in range(10)}
    try:
        answer = client.ask("POST", "/v1/messages", {"h-destination": fresh(), **headers})
    except httpx.RemoteProtocolError:
        return "refused by the server"
    refused = answer.status_code == httpx.codes.REQUEST_HEADER_FIELDS_TOO_LARGE
    by_the_server = refused and "at most 2048 are allowed" not in answer.text  # as the bridge itself says
    return "refused by the server" if by_the_server else code(answer)


def headers_of_60000(client: BridgeClient) -> object:
    """Produce with 60,000 bytes of headers and pull them."""
    target = fresh()
    headers = {f"p-{number}": "v" * 2500 for number in range(24)}
    answer = client.ask("POST", "/v1/messages", {"h-destination": target, **headers})
    if answer.status_code != httpx.codes.OK:
        return code(answer)
    pulled = client.pull(target).json()["properties"]  # so many headers are sent in the JSON form
    return "whole" if all(pulled[name.removeprefix("p-")] == value for name, value in headers.items()) else "changed"


def batch_of_8(client: BridgeClient) -> object:
    return code(client.batch(fresh(), 8))


def batch_of_1200(client: BridgeClient) -> object:
    return code(client.batch(fresh(), 1200))


def quota(client: BridgeClient) -> object:
    """Produce 100 messages at once: more than a second's worth."""
    results = {item.get("code", 200) for item in client.batch(fresh(), 100).json()}
    return sorted(results, key=str)


def strictness(client: BridgeClient) -> object:
    """Produce without an id."""
    return code(client.ask("POST", "/v1/messages", {"h-destination": fresh(), "h-borntimestamp": 1, "h-bornhost": "a"}))


def _taken(client: BridgeClient, size: int) -> int:
    """Count how many of twelve messages a group gets that settles none."""
    target = fresh()
    for _ in range(12):
        client.store(target, bytes(size))
    count = 0
    while client.pull(target).status_code == httpx.codes.OK:
        count += 1
    return count


def prefetch(client: BridgeClient) -> object:
    """Take what comes of twelve small messages and settle none."""
    return _taken(client, 1)


def prefetch_bytes(client: BridgeClient) -> object:
    """Take what comes of twelve messages of 1 KiB and settle none."""
    return _taken(client, 1024)


def waiting_pulls(client: BridgeClient) -> object:
    """Let two pulls wait, and a third."""
    target = fresh()
    assert client.pull(target).status_code == httpx.codes.NO_CONTENT
    with beside(*[lambda: client.pull(target, waitmills=60_000)] * 2):
        wait_until(lambda: client.count("waiting_pulls") == 2, "two pulls wait")
        third = client.pull(target, waitmills=1)
        client.store(target)
        client.store(target)
    return code(third)


def destinations_of_one_client(client: BridgeClient) -> object:
    """Produce to 600 new destinations; count those that are created."""
    messages = [{"destination": fresh(), "messageId": "m", "bornTimestamp": 1, "bornHost": "t:1"} for _ in range(600)]
    content = json.dumps([{"header": header} for header in messages])
    headers = {"x-oms-version": "1.0.0", "content-type": "application/json"}
    answers = client.http.post("/v1/messages", headers=headers, content=content).json()
    assert {each.get("code") for each in answers} <= {None, "limit-reached"}
    return sum(each["status"] == httpx.codes.OK for each in answers)


def has_all_destinations(client: BridgeClient) -> object:
    """Produce to 600 new destinations."""
    return destinations_of_one_client(client) == 600


def groups_of_one_client(client: BridgeClient) -> object:
    """Pull with ten groups of a destination that exists; count those that are opened."""
    target = "groups"
    assert client.pull(target, group="first").status_code == httpx.codes.NO_CONTENT
    answers = [client.pull(target, group=fresh()) for _ in range(9)]
    return 1 + sum(answer.status_code == httpx.codes.NO_CONTENT for answer in answers)


def delayed_of_one_client(client: BridgeClient) -> object:
    """Produce ten delayed messages; count those that are stored."""
    return sum(client.produce("groups", delaytime=60_000).status_code == httpx.codes.OK for _ in range(10))


def delayed_bytes_of_one_client(client: BridgeClient) -> object:
    """Produce ten delayed messages of 147 bytes with their headers; count those that are stored."""
    answers = [client.produce("large", bytes(100), delaytime=60_000) for _ in range(10)]
    return sum(answer.status_code == httpx.codes.OK for answer in answers)


def transactions_of_one_client(client: BridgeClient) -> object:
    """Prepare one message in each of ten transactions; count those that begin."""
    return _prepared(client, "groups", [fresh() for _ in range(10)])


def messages_of_a_transaction(client: BridgeClient) -> object:
    """Prepare ten messages in one transaction; count those that are stored."""
    return _prepared(client, fresh(), [fresh()] * 10)


def bytes_of_a_transaction(client: BridgeClient) -> object:
    """Prepare ten messages of 1,000 bytes, and less than 200 of headers, in one transaction; count those stored."""
    return _prepared(client, fresh(), [fresh()] * 10, bytes(1000))


def prepared_bytes_of_one_client(client: BridgeClient) -> object:
    """Prepare such a message in each of ten transactions; count those that are stored."""
    return _prepared(client, "groups", [fresh() for _ in range(10)], bytes(1000))


def _prepared(client: BridgeClient, destination: str, transactions: list[str], body: bytes = b"x") -> int:
    headers = {"h-destination": destination, "h-borntimestamp": 1, "h-bornhost": "t:1", "transaction": "prepare"}
    answers = [
        client.ask("POST", "/v1/messages", {**headers, "h-messageid": fresh(), "h-transactionid": name}, body)
        for name in transactions
    ]
    for name in set(transactions):
        client.ask("POST", f"/v1/transactions/{name}/rollback")
    return sum(answer.status_code == httpx.codes.OK for answer in answers)


def unknown_destination(client: BridgeClient) -> object:
    """Produce to a destination that does not exist."""
    return code(client.produce(fresh()))


def in_flight(client: BridgeClient) -> object:
    """Produce four messages that the backend does not confirm; count those that are refused."""
    return _refused(client, [b"x"] * 4)


def in_flight_bytes(client: BridgeClient) -> object:
    """Produce three times 1,900 bytes that the backend does not confirm; count those that are refused."""
    return _refused(client, [bytes(1900)] * 3)


def _refused(client: BridgeClient, bodies: list[bytes]) -> int:
    target = f"held-{fresh()}"
    with beside(*(partial(client.produce, target, body) for body in bodies)) as answers:

        def refused() -> int:
            return [code(answer) for answer in answers].count("too-many-in-flight")

        # a held message stays in flight also after its producer was answered 504
        wait_until(lambda: client.count("in_flight") + refused() == len(bodies), "each is in flight or refused")
        client.release()
    wait_until(lambda: client.count("in_flight") == 0, "nothing is in flight")
    return refused()


def produce_timeout(client: BridgeClient) -> object:
    """Produce a message that the backend does not confirm."""
    answer = client.produce(f"held-{fresh()}")
    client.release()
    return f"{code(answer)}: {answer.json()['detail']}"


def produce_in_time(client: BridgeClient) -> object:
    """The same, and confirm it once it is in flight."""
    with beside(lambda: client.produce(f"held-{fresh()}")) as answers:
        wait_until(lambda: client.count("in_flight") == 1, "it is in flight")
        client.release()
    return code(answers[0])


def body_timeout(client: BridgeClient) -> object:
    """Send half a body."""
    with Frames(client.bridge.url) as frames:
        stream = frames.request("POST", "/v1/messages", producing(fresh().encode("ascii")))
        frames.send(stream, b"half")
        answer = frames.answer(stream, PATIENCE)
        return f"{answer.headers[b'x-oms-error'].decode('ascii')}: {json.loads(answer.body)['detail']}"


def open_connections(client: BridgeClient) -> object:
    """Open ten connections, and ask on each of them: how many are still open.

    Granian's are counted once a second. It may accept the last one only when others are closed, and count it then.
    """
    with ExitStack() as connections:
        opened = [connections.enter_context(Frames(client.bridge.url)) for _ in range(10)]
        time.sleep(2.5)
        return sum(frames.ask("GET", "/v1/capabilities").ended == "complete" for frames in opened)


def tenth_body(client: BridgeClient) -> object:
    """Send a body while nine others, of 100,000 bytes each, are not finished."""
    pairs = [*producing(fresh().encode("ascii")), (b"content-length", b"100000")]
    with Frames(client.bridge.url) as frames:
        for _ in range(9):
            frames.send(frames.request("POST", "/v1/messages", pairs), b"half")
        answer = frames.ask("POST", "/v1/messages", pairs, bytes(100_000))
        return answer.status if answer.status == httpx.codes.OK else answer.headers[b"x-oms-error"].decode("ascii")


def stall(client: BridgeClient) -> object:
    """Open a push stream with plenty to send, and read 2,000 bytes of it."""
    target = fresh()
    for _ in range(_STALLED):
        client.store(target, bytes(_BODY))
    with Streams(client.bridge.url, window=2000) as streams:
        stream = streams.push(target.encode("ascii"), ack=False)
        streams.until(lambda: len(streams.bodies[stream]) == 2000, "its window is full")
        wait_until(lambda: client.active() == 0, "the bridge has given the stream up")
        if client.bridge.server == "granian":
            streams.grant(stream, 1 << 20)  # Granian sends what was written before, and then the reset
        streams.until(lambda: streams.over(stream) is not None, "it ends")
        (said,) = [json.loads(line) for line in client.bridge.log.splitlines() if "has stopped reading" in line]
        return f"{streams.over(stream)} after {said['ms']} ms"


def label_of_destination(client: BridgeClient) -> object:
    """Produce to a destination and look for it in the metrics."""
    target = fresh()
    client.store(target)
    return "its own" if f'destination="{target}"' in client.metrics() else "other"


@contextmanager
def beside(*asks: Callable[[], httpx.Response]) -> Iterator[list[httpx.Response]]:
    """Ask all of that at once; the answers that have come are in the list, and all of them after the end."""
    answers: list[httpx.Response] = []
    threads = [threading.Thread(target=lambda ask=ask: answers.append(ask()), daemon=True) for ask in asks]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        for thread in threads:
            thread.join(PATIENCE)
    assert len(answers) == len(asks), "a request was not answered"
