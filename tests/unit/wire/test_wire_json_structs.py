"""Messages that msgspec reads at once are those that `json_errors` reads one by one, and so is each error sentence."""

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

from bridge.errors import BridgeError
from bridge.long_work import run_at_once
from bridge.message import FIELDS, Message
from bridge.wire import jsonform


def test_messages_that_are_read_at_once_are_as_if_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = Counter[bool]()
    decode_at_once = jsonform.decode_messages

    def decode_messages(array: bytes) -> list[Message] | None:
        messages = decode_at_once(array)
        at_once[messages is not None] += 1
        return messages

    def result(raw: bytes, decode: Callable[[bytes], list[Message] | None]) -> object:
        monkeypatch.setattr(jsonform, "decode_messages", decode)
        try:
            return [repr(each) for each in run_at_once(jsonform.decode_array(raw, 6))]
        except BridgeError as error:
            return repr(error)

    chance = random.Random(7)  # noqa: S311
    for _ in range(3000):
        monkeypatch.setattr(jsonform, "PIECE", chance.choice((16, 300, 32 << 10)))
        raw = varied_array(chance).encode("utf-8", "surrogatepass")
        assert result(raw, decode_messages) == result(raw, lambda _: None), raw
    assert min(at_once[False], at_once[True]) > 100


_TEXTS: Final = (
    "",
    "a",
    "ü",
    "x" * 63,
    "x" * 250,
    "\ud800",
    "😀",
    'q"q',
    "b\\",
    '\\"',
    ":",
    "},{",
    "]",
    f"00-{'1a' * 16}-{'2b' * 8}-01",
)
_NUMBERS: Final = (
    "0",
    "-0",
    "1",
    "-1",
    "2147483648",
    str(2**63 - 1),
    str(2**63),
    "9" * 30,
    "1.0",
    "1e2",
    "null",
    "true",
    "{}",
)
_DATA: Final = ('"aGk="', '"aGl="', '""', '"aGk"', '"a-_="', "null", "{}")


def varied_array(chance: random.Random) -> str:
    """Return an array of messages; about half of them have an error, or a form that few clients send."""

    def text() -> str:
        return json.dumps(chance.choice(_TEXTS), ensure_ascii=chance.random() < 0.5)

    def json_object(pairs: list[tuple[str, str]]) -> str:
        if pairs and chance.random() < 0.03:
            pairs.append(chance.choice(pairs))
        return f"{{{chance.choice((',', ', ', ' ,')).join(f'{name}:{value}' for name, value in pairs)}}}"

    def message() -> str:
        sections: dict[str, list[tuple[str, str]]] = {"header": [('"destination"', '"orders"')], "extensionHeader": []}
        for field in chance.sample(FIELDS[1:], 3):
            value = text() if (field.maximum is None) == (chance.random() < 0.95) else chance.choice(_NUMBERS)
            sections[field.section].append((f'"{field.name}"', value))
        if chance.random() < 0.2:
            carried = chance.choice(("contentType", "traceparent", "tracestate", "unknown"))
            sections["extensionHeader"].append((f'"{carried}"', chance.choice((text(), json.dumps(_TEXTS[-1])))))
        members = [(f'"{name}"', json_object(pairs)) for name, pairs in sections.items()]
        properties = [(text(), text() if chance.random() < 0.9 else chance.choice(_NUMBERS)) for _ in range(2)]
        members += [
            ('"properties"', json_object(properties)),
            ('"data"', chance.choice(_DATA)),
            ('"version"', '"1.0.0"'),
        ]
        return json_object(chance.sample(members, chance.choice((4, 5))))

    array = "[" + chance.choice((",", "\n, ")).join(message() for _ in range(chance.randrange(8))) + "]"
    if chance.random() < 0.2:
        at = chance.randrange(len(array))
        array = array[:at] + chance.choice('{}[],:"\\ x1') + array[at + 1 :]
    return array
