"""The AsyncAPI document: the official parser has no complaint, and what it says of messages is true."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import pytest

from bridge.http.description import asyncapi, openapi
from bridge.http.request_and_reply import Limits
from bridge.message import FIELDS, Message
from bridge.wire.stream_framings import StreamEnd, StreamMessage, choose_framing
from tests.brokers.cache import CACHE, filling

PARSER: Final = "@asyncapi/parser@3.6.3"
DOCUMENT: Final = asyncapi(Limits())
OPENAPI: Final = openapi(Limits())


def complaints(document: dict[str, Any]) -> list[list[Any]]:
    """Return what the official parser finds, from hints to errors."""
    home = CACHE / PARSER.replace("/", "-").removeprefix("@")
    if shutil.which("npm") is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("npm is not installed")
    with filling():
        if not home.exists():
            partial = CACHE / "asyncapi.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(partial), PARSER]
            subprocess.run(command, check=True)
            shutil.copy(Path(__file__).with_name("asyncapi.mjs"), partial)
            partial.rename(home)
    done = subprocess.run(
        ["node", home / "asyncapi.mjs"], input=json.dumps(document), capture_output=True, text=True, check=True
    )
    found: list[list[Any]] = json.loads(done.stdout)
    return found


@pytest.mark.extended
def test_the_official_parser_has_no_complaint_and_would_have_one() -> None:
    assert complaints(DOCUMENT) == []
    broken = json.loads(json.dumps(DOCUMENT))
    broken["operations"]["pull"]["action"] = "take"
    assert [place for *_, place in complaints(broken)] == ["operations.pull.action"]


def test_every_reference_leads_somewhere_and_every_operation_is_one_of_the_bridge() -> None:
    for reference in re.findall(r'"#/([^"]+)"', json.dumps(DOCUMENT)):
        place: Any = DOCUMENT
        for step in reference.split("/"):
            place = place[step]
    for name, operation in DOCUMENT["operations"].items():
        address = DOCUMENT["channels"][operation["channel"]["$ref"].rpartition("/")[2]]["address"] or "/v1/push"
        described = OPENAPI["paths"][address][operation["bindings"]["http"]["method"].lower()]
        assert operation["summary"] == described["summary"]
        assert described["operationId"] == {"callback": "register"}.get(name, name)


def test_schemas_are_those_of_openapi() -> None:
    schemas = dict(DOCUMENT["components"]["schemas"])
    [end] = [each for each in OPENAPI["components"]["schemas"]["ProduceStreamLine"]["anyOf"] if "end" in str(each)]
    assert schemas.pop("StreamEnd") == end
    assert schemas == {name: OPENAPI["components"]["schemas"][name] for name in schemas}
    assert DOCUMENT["components"]["messages"]["Batch"]["payload"] == OPENAPI["components"]["schemas"]["Batch"]


def test_every_field_is_a_header_of_a_message() -> None:
    headers = DOCUMENT["components"]["messages"]["Message"]["headers"]["properties"]
    assert set(headers) == {f"x-oms-h-{field.name.lower()}" for field in FIELDS} | {"traceparent", "tracestate"}


def test_a_line_of_a_push_stream_is_as_described() -> None:
    schema = DOCUMENT["components"]["messages"]["Line"]["payload"]
    line = jsonschema_rs.validator_for(schema | {"components": DOCUMENT["components"]})
    framing = choose_framing(b"application/x-ndjson", b"boundary")
    message = Message("orders", b"x", {"region": "eu"}, message_id="m-1", delivery_count=1)
    pieces = [framing.messages([("", StreamMessage(message, "a-1-2-b", 7))]), framing.end(StreamEnd("draining"))]
    for piece in b"".join(pieces).splitlines():
        line.validate(json.loads(piece))
    assert not line.is_valid({"header": {"destination": "orders"}, "lease": 7})
