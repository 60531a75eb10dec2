"""Text beyond ASCII in every field that holds text, in each form in which a client may send it."""

import asyncio
import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from tests.conformance.conversation import Conversation

TEXTS: Final = (
    "Zürich",
    "顧客 注文",
    "مرحبا",
    "🚀👩\u200d👩\u200d👧",  # beyond the first plane, and joined by an invisible character
    "e\u0301 and \u00e9",  # one letter in two ways, which must stay two
    "\u00a0non-breaking\u00a0",
    " outer spaces ",
    "50% of %41 %zz",
    "tab\tinside",
    'quotes " and , ; = \\',
    "UTF-8''not%20an%20extended%20value",
    "line\r\nx-oms-version: 9\r\n\r\n\x00\x7f",
    "\ufeffmark",
    "long " + "ü" * 400,
)
FIELDS: Final = ("messageKey", "messageId", "correlationId", "traceId", "transactionId")
PROPERTIES: Final = ("Größe", "顧客", "a b", "x:y=z", "😀", "%41", "line\r\n", "ü" * 124)
"""Names."""
FORMS: Final = ("extended", "multipart", "json")


class Sent(NamedTuple):
    """A message as a client meant it."""

    body: bytes
    """No other has the same."""
    fields: Mapping[str, str]
    properties: Mapping[str, str]


def messages(form: str) -> list[Sent]:
    """Return one message for each text, which is in all of its fields and in a property of each name."""
    found = []
    for number, text in enumerate(TEXTS):
        fields = dict.fromkeys(FIELDS, text)
        identity = re.sub(r"[\0-\x1f\x7f-\x9f]", "", text)  # an id has no control characters
        fields["messageId"], fields["transactionId"] = f"{form} {number} {identity}", identity
        names = PROPERTIES if len(text) < 100 else PROPERTIES[:1]
        found.append(Sent(f"{form} {number}".encode(), fields, dict.fromkeys(names, text)))
    return found


async def produce(talk: Conversation, form: str, sent: Sequence[Sent]) -> None:
    """Send them in one form."""
    if form == "extended":
        for message in sent:
            answer = await talk.produce(message.body, _pairs(message))
            assert read_fields(answer.headers.multi_items())[0]["messageid"] == message.fields["messageId"]
        return
    kind, body = _in_json(talk, sent) if form == "json" else _in_parts(talk, sent)
    answer = await talk.http.post(
        "/v1/messages", headers={"x-oms-version": "1.0.0", "content-type": kind}, content=body
    )
    assert answer.status_code == 200, answer.text
    assert [result["messageId"] for result in answer.json()] == [message.fields["messageId"] for message in sent]


async def come_back(talk: Conversation, sent: Sequence[Sent]) -> None:
    """Take them by pulls, and again by a stream as another group: each is as it was sent."""
    expected = {message.body: message for message in sent}
    assert len(expected) == len(sent)
    for taken in await talk.take_all(len(sent)):
        fields, properties = read_fields(taken.headers.multi_items())
        message = expected[taken.body]
        assert {name: fields.get(name.lower()) for name in FIELDS} == message.fields, taken.body
        assert properties == message.properties, taken.body
    for line in await _streamed(talk, len(sent)):
        message = expected.pop(base64.b64decode(line["data"]))
        said = {**line["header"], **line["extensionHeader"]}
        assert {name: said.get(name) for name in FIELDS} == message.fields, message.body
        assert line.get("properties") == message.properties, message.body
    assert not expected


def read_fields(headers: Sequence[tuple[str, str]]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the fields and properties of an answer, decoded as the profile says; all of it must be printable ASCII."""
    fields: dict[str, str] = {}
    properties: dict[str, str] = {}
    for name, value in headers:
        assert (name + value).isascii(), name
        assert (name + value).isprintable(), name
        text = unquote(value.removeprefix("UTF-8''"), errors="strict") if name.endswith("*") else value
        if name.startswith("x-oms-h-"):
            fields[name.removeprefix("x-oms-h-").removesuffix("*")] = text
        elif name.startswith("x-oms-p-"):
            properties[unquote(name.removeprefix("x-oms-p-").removesuffix("*"), errors="strict")] = text
    return fields, properties


async def _streamed(talk: Conversation, count: int) -> list[dict[str, Any]]:
    asked = {"source": talk.destination, "consumerid": f"{talk.group}-stream", "ack": "false"}
    asked |= {"version": "1.0.0", "maxmessages": str(count)}
    lines: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        answer = await talk.http.get("/v1/push", params=asked, headers={"accept": "application/x-ndjson"})
    for text in answer.text.split("\n"):
        line = json.loads(text) if text.strip() else {}
        if "data" in line:
            lines.append(line)
    return lines


def _pairs(message: Sent) -> list[tuple[bytes, bytes]]:
    named = {f"x-oms-h-{name.lower()}": value for name, value in message.fields.items()}
    named |= {f"x-oms-p-{_escaped(name)}": value for name, value in message.properties.items()}
    return [(f"{name}*".encode(), f"UTF-8''{quote(value, safe='')}".encode()) for name, value in named.items()]


def _escaped(name: str) -> str:
    plain = b"abcdefghijklmnopqrstuvwxyz0123456789._-"
    return "".join(chr(byte) if byte in plain else f"%{byte:02x}" for byte in name.encode())


def _in_parts(talk: Conversation, sent: Sequence[Sent]) -> tuple[str, bytes]:
    """Return a batch with one part for each message."""
    parts = []
    for message in sent:
        lines = [(b"x-oms-h-destination", talk.destination.encode()), *_pairs(message)]
        head = b"".join(b"%s: %s\r\n" % pair for pair in lines)
        parts.append(b"--frontier\r\n" + head + b"\r\n" + message.body + b"\r\n")
    return "multipart/mixed; boundary=frontier", b"".join(parts) + b"--frontier--"


def _in_json(talk: Conversation, sent: Sequence[Sent]) -> tuple[str, bytes]:
    """Return a batch whose texts are by turns UTF-8 and escaped."""
    found = []
    for number, message in enumerate(sent):
        fields = dict(message.fields)
        whole = {
            "header": {"destination": talk.destination, "messageId": fields.pop("messageId")},
            "extensionHeader": fields,
            "properties": message.properties,
            "data": base64.b64encode(message.body).decode("ascii"),
        }
        found.append(json.dumps(whole, ensure_ascii=number % 2 == 0))
    return "application/json", f"[{','.join(found)}]".encode()
