"""Messages over TLS: produced, pulled and pushed in every framing, on both servers and over both protocols."""

import base64
import json
import ssl
import warnings
from pathlib import Path
from typing import Final

import pytest

from tests.launch import Bridge
from tests.tls.conftest import Secured
from tests.tls.pki import Pki
from tests.tls.talk import client, connected, fresh, lines_of, named, parts_of, produce, pull, pushed

EMPTY_SETTINGS: Final = b"\0\0\0\4\0\0\0\0\0"
PROTOCOLS = pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])


@PROTOCOLS
@pytest.mark.parametrize("mutual", [False, True], ids=["", "mutual"])
def test_messages_travel_both_ways(secured: Secured, pki: Pki, http2: bool, mutual: bool) -> None:
    bridge = secured(mutual=mutual)
    context = pki.known() if mutual else pki.trusting()
    with client(bridge, context, http2=http2) as talk:
        target, bodies = fresh(), [b"first", b"\0\xff" * 100]
        for body in bodies:
            answer = produce(talk, target, body)
            assert (answer.status_code, answer.http_version) == (200, "HTTP/2" if http2 else "HTTP/1.1")
        for body in bodies:
            pulled = pull(talk, target)
            assert pulled.content == body
            settled = talk.post("/v1/ack", headers=named(receipt=pulled.headers["x-oms-receipt"]))
            assert settled.status_code == 204
        assert pull(talk, target).status_code == 204
        assert parts_of(pushed(talk, target, "multipart/mixed")) == bodies
        for accept in ("application/x-ndjson", "text/event-stream"):
            *lines, end = lines_of(pushed(talk, target, accept).iter_lines())
            assert [base64.b64decode(line["data"]) for line in lines] == bodies
            assert end == {"end": "maxmessages"}


@PROTOCOLS
def test_a_batch_and_a_large_body(secured: Secured, pki: Pki, http2: bool) -> None:
    with client(secured(), pki.trusting(), http2=http2) as talk:
        target, large = fresh(), bytes(range(256)) * (12 << 10)
        batch = [{"header": {"destination": target}, "data": base64.b64encode(b"%d" % n).decode()} for n in range(100)]
        headers = named() | {"content-type": "application/json"}
        results = talk.post("/v1/messages", headers=headers, content=json.dumps(batch)).json()
        assert {result["status"] for result in results} == {200}
        assert produce(talk, f"{target}.large", large).status_code == 200
        assert pull(talk, f"{target}.large").content == large


@PROTOCOLS
def test_an_open_event_stream_gets_what_is_produced_later(secured: Secured, pki: Pki, http2: bool) -> None:
    bridge, target = secured(mutual=True), fresh()
    asked = named(source=target, consumerid="g", maxmessages=3) | {"accept": "text/event-stream"}
    with (
        client(bridge, pki.known(), http2=http2) as reading,
        client(bridge, pki.known(), http2=http2) as writing,
        reading.stream("GET", "/v1/push", headers=asked) as stream,
    ):
        lines = lines_of(stream.iter_lines())
        for number in range(3):
            assert produce(writing, target, b"%d" % number).status_code == 200
            assert base64.b64decode(next(lines)["data"]) == b"%d" % number
        assert next(lines) == {"end": "maxmessages"}


def test_a_drain_ends_a_stream_with_its_end(server: str, pki: Pki, tmp_path: Path) -> None:
    with (
        Bridge(tmp_path, server=server, settings=pki.settings(mutual=False)) as bridge,
        client(bridge, pki.trusting(), http2=True) as talk,
    ):
        asked = named(source=fresh(), consumerid="g") | {"accept": "application/x-ndjson"}
        with talk.stream("GET", "/v1/push", headers=asked) as stream:
            bridge.begin_to_stop()
            assert list(lines_of(stream.iter_lines())) == [{"end": "draining"}]
        talk.close()
        assert bridge.wait() == 0


def test_alpn_chooses_http2_if_the_client_offers_it(secured: Secured, pki: Pki, subtests: pytest.Subtests) -> None:
    bridge = secured()
    for alpn, protocol in (
        (["h2", "http/1.1"], "h2"),
        (["http/1.1", "h2"], "h2"),
        (["h2"], "h2"),
        (["http/1.1"], "http/1.1"),
        ([], None),
    ):
        context = pki.trusting()
        if alpn:
            context.set_alpn_protocols(alpn)
        with subtests.test(alpn=alpn), context.wrap_socket(connected(bridge), server_hostname="localhost") as talk:
            assert talk.selected_alpn_protocol() == protocol
            if protocol == "h2":
                talk.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + EMPTY_SETTINGS)
                assert talk.recv(9)[3] == 4, "its first frame is SETTINGS"
            else:
                talk.sendall(b"GET /v1/capabilities HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert talk.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_tls_1_2_is_the_oldest_version_served(secured: Secured, pki: Pki, subtests: pytest.Subtests) -> None:
    bridge = secured()
    for version, served in (
        (ssl.TLSVersion.TLSv1_1, False),
        (ssl.TLSVersion.TLSv1_2, True),
        (ssl.TLSVersion.TLSv1_3, True),
    ):
        context = pki.trusting()
        context.set_ciphers("ALL:@SECLEVEL=0")  # else this client's own OpenSSL refuses TLS 1.1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of TLS 1.1
            context.minimum_version = context.maximum_version = version
        with subtests.test(version=version.name), connected(bridge) as plain:
            if served:
                with context.wrap_socket(plain, server_hostname="localhost") as talk:
                    assert talk.version() == version.name.replace("_", ".")
            else:
                with pytest.raises(OSError):  # noqa: PT011 - an alert, or no protocol in common: as OpenSSL was built
                    context.wrap_socket(plain, server_hostname="localhost")
