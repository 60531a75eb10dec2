"""The page about webhooks: a bridge with its settings takes each of its requests as the product sends it."""

import gzip
import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterator
from typing import Final, NamedTuple, get_args

import httpx
import pytest

from bridge.settings.model import VerifySettings
from tests.docs.page import Page
from tests.launch import Bridge

PAGE: Final = Page("webhooks.md")
SECRETS: Final = {name: f"whsec_{name}" for name in ("github", "stripe", "grafana")}
"""Secrets of the test, by destination."""


class Sent(NamedTuple):
    """One request of the page."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def destination(self) -> str:
        return self.path.split("/")[3]


def requests() -> list[Sent]:
    """Return the requests of the page, without signatures."""
    found = []
    for block in re.findall(r"```http\n(.*?)\n```", PAGE.text, re.DOTALL):
        head, _, body = block.partition("\n\n")
        line, *fields = head.splitlines()
        method, path, version = line.split()
        assert (method, version) == ("POST", "HTTP/1.1")
        found.append(Sent(path, dict(field.split(": ", 1) for field in fields), body.encode()))
    return found


REQUESTS: Final = requests()


def signature(destination: str, body: bytes) -> dict[str, str]:
    """Sign a body as the product does."""
    if destination not in SECRETS:
        return {}
    before, form, header = {
        "github": ("", "sha256={}", "x-hub-signature-256"),
        "stripe": (f"{int(time.time())}.", "t={time},v1={}", "stripe-signature"),
        "grafana": ("", "{}", "x-grafana-alerting-signature"),
    }[destination]
    digest = hmac.new(SECRETS[destination].encode(), before.encode() + body, hashlib.sha256).hexdigest()
    return {header: form.format(digest, time=before.rstrip("."))}


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """Start a bridge with the settings of the page."""
    folder = tmp_path_factory.mktemp("webhooks")
    for name, secret in SECRETS.items():
        (folder / name).write_text(f"{secret}\n")
    settings, *_ = re.findall(r"```yaml\n(# bridge\.yaml\n.*?)```", PAGE.text, re.DOTALL)
    config = folder / "bridge.yaml"
    config.write_text(settings.replace("/run/secrets", str(folder)))
    with Bridge(folder, settings={"OMS_CONFIG": str(config)}) as bridge:
        yield bridge


def test_the_page_has_a_request_of_each_product() -> None:
    assert [sent.destination for sent in REQUESTS] == ["github", "stripe", "alerts", "grafana", "vector", "fluent-bit"]
    lines = {sent.destination: sent.body.splitlines() for sent in REQUESTS if "ndjson" in sent.headers["content-type"]}
    assert all(json.loads(line) for line in lines["fluent-bit"])
    assert all(json.loads(sent.body) for sent in REQUESTS if sent.destination not in lines)


@pytest.mark.parametrize("sent", REQUESTS, ids=[sent.destination for sent in REQUESTS])
def test_a_request_is_stored_as_it_was_sent(bridge: Bridge, sent: Sent) -> None:
    with httpx.Client(base_url=bridge.url, trust_env=False, timeout=20) as http:
        signed = signature(sent.destination, sent.body)
        if signed:
            refused = http.post(sent.path, content=sent.body, headers=sent.headers)
            assert (refused.status_code, refused.json()["code"]) == (401, "signature-invalid")
        answer = http.post(sent.path, content=sent.body, headers=sent.headers | signed)
        assert answer.status_code == 200, answer.text
        pull = {"version": "1.0.0", "source": sent.destination, "consumerid": "page"}
        pulled = http.get("/v1/messages", params=pull)
        assert (pulled.content, pulled.headers["content-type"]) == (sent.body, sent.headers["content-type"])
        assert pulled.headers["x-oms-h-messageid"] == answer.json()["messageId"]
        properties = {name: value for name, value in pulled.headers.items() if name.startswith("x-oms-p-")}
        named = {"github": ("x-github-event", "x-github-delivery"), "alerts": ("user-agent",)}
        named |= {"fluent-bit": ("x-fluent-tag",)}
        assert properties == {f"x-oms-p-{name}": sent.headers[name] for name in named.get(sent.destination, ())}
        assert http.get("/v1/messages", params=pull).status_code == 204


def test_a_body_that_vector_has_compressed_stays_so(bridge: Bridge) -> None:
    [sent] = (each for each in REQUESTS if each.destination == "vector")
    body = gzip.compress(sent.body)
    with httpx.Client(base_url=bridge.url, trust_env=False, timeout=20) as http:
        answer = http.post(sent.path, content=body, headers=sent.headers | {"content-encoding": "gzip"})
        assert answer.status_code == 200, answer.text
        pull = {"version": "1.0.0", "source": "vector", "consumerid": "compressed"}
        raw = b""
        while raw != body:
            with http.stream("GET", "/v1/messages", params=pull, headers={"accept-encoding": "gzip"}) as pulled:
                assert pulled.status_code == 200, "the message does not come"
                raw = b"".join(pulled.iter_raw())


def test_every_scheme_is_explained() -> None:
    schemes = get_args(VerifySettings.model_fields["scheme"].annotation)
    assert [row[0].strip("`") for row in PAGE.table("Signatures")] == list(schemes)
