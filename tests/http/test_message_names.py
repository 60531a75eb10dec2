"""Names of messages on running bridges: ids that are refused, names that are not equal, and one client's many names."""

import json
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote

import httpx
import pytest

from tests.conformance.frames import Answer, Frames
from tests.http.asking import VERSION, fresh, pull, refusal, stored
from tests.http.conftest import MOSTLY_HYPERCORN, Start
from tests.launch import Bridge

JSON: Final = (b"content-type", b"application/json")
NDJSON: Final = (b"content-type", b"application/x-ndjson")
PARTS: Final = (b"content-type", b"multipart/mixed; boundary=b")
KEY: Final = b"idempotency-key"
PREPARE: Final = (b"x-oms-transaction", b"prepare")
CONTROL: Final = ("\0", "\t", "\n", "\x1b", "\x1f", "\x7f", "\x80", "\x9f")
EVENT: Final = {"specversion": "1.0", "type": "t", "source": "/s", "id": "i"}


def put(frames: Frames, destination: bytes, name: str, *more: tuple[bytes, bytes], body: bytes = b"x") -> Answer:
    return frames.ask("PUT", f"/v1/destinations/{destination.decode()}/messages/{name}", more, body)


def is_duplicate(answer: Answer) -> bool:
    assert answer.status == 200, answer
    return b"x-oms-duplicate" in answer.headers


def escaped(text: str) -> bytes:
    return b"UTF-8''" + quote(text, safe="").encode("ascii")


def ways(frames: Frames, target: bytes, text: str) -> Iterator[tuple[str, Answer]]:
    """Send a message with this id in every way that there is."""
    destination = (b"x-oms-h-destination", target)
    path, name = f"/v1/destinations/{target.decode()}/messages", quote(text, safe="")

    def single(what: str, *pairs: tuple[bytes, bytes], body: bytes = b"x") -> tuple[str, Answer]:
        return what, frames.ask("POST", "/v1/messages", [VERSION, destination, *pairs], body)

    yield "path", put(frames, target, name)
    yield "path with a key", put(frames, target, name, (KEY, b"k"))
    yield "query", frames.ask("POST", f"{path}?id={name}", [], b"x")
    yield single("header", (b"x-oms-h-messageid*", escaped(text)))
    yield single("prepared", (b"x-oms-h-messageid*", escaped(text)), PREPARE)
    yield single("transaction", (b"x-oms-h-transactionid*", escaped(text)), PREPARE)
    yield "transaction in the query", frames.ask("POST", f"{path}?transaction={name}", [PREPARE], b"x")
    yield single(
        "binary event",
        *((f"ce-{k}".encode(), v.encode()) for k, v in EVENT.items() if k != "id"),
        (b"ce-id", name.encode()),
    )
    yield single(
        "source of a binary event",
        *((f"ce-{k}".encode(), v.encode()) for k, v in EVENT.items() if k != "source"),
        (b"ce-source", name.encode()),
    )
    for attribute in ("id", "source"):
        event = json.dumps(EVENT | {attribute: text}).encode()
        yield single(f"{attribute} of an event", (b"content-type", b"application/cloudevents+json"), body=event)


def batches(frames: Frames, target: bytes, text: str) -> Iterator[tuple[str, Answer]]:
    """Send batches of a good message and one with this id."""
    good = {"header": {"destination": target.decode()}, "data": "Z29vZA=="}
    bad = {"header": {"destination": target.decode(), "messageId": text}}
    named = {"header": {"destination": target.decode()}, "extensionHeader": {"transactionId": text}}

    def batch(what: str, pair: tuple[bytes, bytes], body: bytes, *more: tuple[bytes, bytes]) -> tuple[str, Answer]:
        return what, frames.ask("POST", "/v1/messages", [VERSION, pair, *more], body)

    yield batch("array", JSON, json.dumps([good, bad]).encode())
    yield batch("array with a key", JSON, json.dumps([good, bad]).encode(), (KEY, b"k-%b" % target))
    yield batch("array of transaction ids", JSON, json.dumps([good, named]).encode())
    part = b"--b\r\nx-oms-h-destination: %b\r\n" % target
    parts = part + b"\r\ngood\r\n" + part + b"x-oms-h-messageid*: %b\r\n\r\nx\r\n--b--" % escaped(text)
    yield batch("multipart", PARTS, parts)
    events = json.dumps(
        [EVENT | {"id": f"{id(text)}", "data": "good", "datacontenttype": "text/plain"}, EVENT | {"id": text}]
    )
    yield batch(
        "events",
        (b"content-type", b"application/cloudevents-batch+json"),
        events.encode(),
        (b"x-oms-h-destination", target),
    )


@pytest.mark.parametrize("text", [f"a{char}b" for char in CONTROL] + ["\0k", "m\0\0src"], ids=ascii)
def test_an_id_with_a_control_character_is_refused_in_every_way(
    frames: Frames, text: str, subtests: pytest.Subtests
) -> None:
    target = fresh()
    for what, answer in ways(frames, target, text):
        with subtests.test(what):
            refusal(answer, 400, "header-invalid", "control character")
    good = 0
    for what, answer in batches(frames, target, text):
        with subtests.test(what):
            assert answer.status == 207, answer
            results = json.loads(answer.body)
            assert [result["status"] for result in results] == [200, 400], results
            assert results[1]["code"] == "header-invalid"
            assert "control character" in results[1]["detail"]
        good += 1
    lines = [
        {"header": {"destination": target.decode(), "messageId": each}, "data": "Z29vZA=="} for each in (text, "fine")
    ]
    body = "\n".join(map(json.dumps, lines)).encode()
    answer = frames.ask("POST", "/v1/stream", [VERSION, NDJSON], body)
    first, second, end = map(json.loads, answer.body.splitlines())
    assert (first["code"], second["status"], end) == ("header-invalid", 200, {"end": "complete"})
    assert stored(frames, target) == [b"good"] * (good + 1)


def test_a_key_with_a_control_character_is_refused(bridge: Bridge) -> None:
    """A header with one is malformed HTTP, for which a server may end the connection."""
    target = fresh()
    for key in (b"a\tb", b"a\x7fb", b"\xc2\x80"):
        with Frames(bridge.url) as frames:
            assert put(frames, target, "m", (KEY, key)).status in {400, None}
    with Frames(bridge.url) as frames:
        assert put(frames, target, "m", (KEY, b"UTF-8''%00k")).status == 200, "it is printable text"
        assert stored(frames, target) == [b"x"]


def test_no_text_makes_two_names_equal(frames: Frames, subtests: pytest.Subtests) -> None:
    """A messageId, a key, a message of a batch, a line of a stream, and an event of a source are different names."""
    target, body = fresh(), b""
    destination = {"destination": target.decode()}

    def post(*pairs: tuple[bytes, bytes], batch: object = None) -> list[bool]:
        headers = [VERSION, *pairs]
        if batch is None:
            answer = frames.ask("POST", "/v1/messages", [*headers, (b"x-oms-h-destination", target)], body)
            return [is_duplicate(answer)]
        answer = frames.ask("POST", "/v1/messages", [*headers, JSON], json.dumps(batch).encode())
        assert answer.status == 200, answer
        return [result.get("duplicate", False) for result in json.loads(answer.body)]

    def named(text: str) -> tuple[bytes, bytes]:
        return b"x-oms-h-messageid*", escaped(text)

    two = [{"header": destination}, {"header": destination}]
    sent: dict[str, Callable[[], list[bool]]] = {
        "an id": lambda: post(named("k")),
        "a key": lambda: post((KEY, b"k")),
        "a key that looks like a place": lambda: post((KEY, b"k/0")),
        "a key that looks like another": lambda: post((KEY, b"0 k")),
        "a batch": lambda: post((KEY, b"k"), batch=two),
        "a batch whose key looks like a place": lambda: post((KEY, b"k/1"), batch=two),
        "an event": lambda: post(named("m"), (b"x-oms-p-source", b"src")),
        "an id with what looks like a source": lambda: post(named("m src")),
        "an id that ends where the source begins": lambda: post(named("ms"), (b"x-oms-p-source", b"rc")),
        "an event without source": lambda: post(named("m")),
        "an event with an empty source": lambda: post(named("m"), (b"x-oms-p-source", b"")),
    }
    for what, send in sent.items():
        with subtests.test(what):
            assert not any(send()), "it is no duplicate"
    for what, send in sent.items():
        with subtests.test(f"{what} again"):
            assert all(send())


def test_keys_of_a_transaction_have_places_too(frames: Frames) -> None:
    target = fresh()
    transaction = [VERSION, PREPARE, (b"x-oms-h-transactionid", target)]
    header = {"header": {"destination": target.decode()}}
    for count, key in ((1, b"k"), (2, b"k/0")):
        batch = json.dumps([header] * count).encode()
        answer = frames.ask("POST", "/v1/messages", [*transaction, JSON, (KEY, key)], batch)
        assert [result.get("duplicate", False) for result in json.loads(answer.body)] == [False] * count
        single = frames.ask("POST", "/v1/messages", [*transaction, (b"x-oms-h-destination", target), (KEY, key)], b"")
        assert is_duplicate(single) == (count == 1), "a batch of one is named as that message alone"
    assert frames.ask("POST", f"/v1/transactions/{target.decode()}/commit", [VERSION], b"").status == 200
    assert len(stored(frames, target)) == 4


def connect(bridge: Bridge, address: str) -> httpx.Client:
    transport = httpx.HTTPTransport(local_address=address)
    return httpx.Client(base_url=bridge.url, transport=transport, headers=[VERSION], timeout=60)


@MOSTLY_HYPERCORN
@pytest.mark.parametrize("flooder", ["127.0.0.2", "127.0.0.1"])
def test_one_client_forgets_only_its_own_names(start: Start, flooder: str) -> None:
    """1 MiB has some 900 names. A quarter are the others', then one address sends ten times as many."""
    bridge = start(OMS_DEDUP__BYTES="1MiB", OMS_DEDUP__WINDOW="3600000", OMS_LIMITS__DESTINATIONS="1000")
    target = fresh().decode()

    def batch(client: httpx.Client, first: int, count: int, padding: str = "") -> list[bool]:
        names = [f"{client.headers['user-agent']}-{number}{padding}" for number in range(first, first + count)]
        messages = [{"header": {"destination": target, "messageId": name}} for name in names]
        answer = client.post("/v1/messages", json=messages)
        assert answer.status_code == 200, answer.text
        return [result.get("duplicate", False) for result in answer.json()]

    with connect(bridge, flooder) as flood, connect(bridge, "127.0.0.3") as one, connect(bridge, "127.0.0.4") as other:
        for name, client in (("flood", flood), ("one", one), ("other", other)):
            client.headers["user-agent"] = f"{name}-{target}"
        assert batch(one, 0, 100) == batch(other, 0, 100) == [False] * 100
        for number in range(10):
            assert not any(batch(flood, number * 1000, 1000))
        for number in range(10):
            assert not any(batch(flood, 10_000 + number * 100, 100, "x" * 3000))
        assert batch(one, 0, 100) == batch(other, 0, 100) == [True] * 100
        assert batch(one, 100, 100) == [False] * 100, "a new id is stored"
        assert batch(flood, 10_999, 1, "x" * 3000) == [True], "it has its share"
        assert batch(flood, 0, 1) == [False], "the oldest names of this peer are forgotten"


def test_a_produce_that_fails_leaves_no_claim(frames: Frames, subtests: pytest.Subtests) -> None:
    """A retry does not wait for a message that was never passed on: each name is tried twice, and then well."""
    target = fresh()
    wrong: dict[str, tuple[str, list[tuple[bytes, bytes]]]] = {
        "an id": ("%00m", []),
        "a partition": ("m?partition=9999", []),
        "a delay": ("m?delay=400d", []),
        "a requirement": ("m?require=qos&qos=2", []),
    }
    for what, (name, pairs) in wrong.items():
        with subtests.test(what):
            for _ in range(2):
                assert put(frames, target, name, *pairs).status in {400, 422}
    assert not is_duplicate(put(frames, target, "m"))
    assert is_duplicate(put(frames, target, "m"))
    assert pull(frames, target).body == b"x"
