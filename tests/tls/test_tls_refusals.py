"""Clients that a bridge behind TLS refuses, and clients that refuse it: both fail, and nothing is stored."""

import ssl
from pathlib import Path

import httpx
import pytest

from tests.launch import Bridge
from tests.tls.conftest import Secured
from tests.tls.pki import Pki
from tests.tls.talk import PATIENCE, client, connected, counts, fresh, produce, pull, to_the_end


def test_a_client_without_a_right_certificate_is_refused(secured: Secured, pki: Pki, subtests: pytest.Subtests) -> None:
    bridge, target = secured(mutual=True), fresh()
    before = counts(bridge)["produced"]
    for who, context in pki.strangers().items():
        for http2 in (False, True):
            with (
                subtests.test(who, http2=http2),
                client(bridge, context, http2=http2) as stranger,
                pytest.raises((httpx.TransportError, ssl.SSLError)),  # httpx does not translate every alert
            ):
                produce(stranger, target, b"x")
    with client(bridge, pki.known(), http2=True) as known:
        assert pull(known, target).status_code == 204
    assert counts(bridge)["produced"] == before


def test_a_certificate_is_not_asked_for_without_a_client_authority(secured: Secured, pki: Pki) -> None:
    """A client that has one may connect all the same."""
    with client(secured(), pki.known(), http2=True) as talk:
        assert produce(talk, fresh(), b"x").status_code == 200


def test_a_client_that_does_not_trust_the_authority_sends_nothing(
    secured: Secured, pki: Pki, subtests: pytest.Subtests
) -> None:
    bridge = secured()
    before = counts(bridge)["produced"]
    for what, cafile in (("the public authorities", None), ("another authority", pki.other_ca)):
        context = ssl.create_default_context(cafile=cafile)
        with (
            subtests.test(what),
            client(bridge, context, http2=True) as talk,
            pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            produce(talk, fresh(), b"x")
    with (
        subtests.test("another name"),
        connected(bridge) as plain,
        pytest.raises(ssl.SSLCertVerificationError, match=r"bridge\.example"),
    ):
        pki.trusting().wrap_socket(plain, server_hostname="bridge.example")
    assert counts(bridge)["produced"] == before


def test_cleartext_to_the_tls_port_ends(secured: Secured, subtests: pytest.Subtests) -> None:
    bridge = secured()
    for what, sent in {
        "HTTP/1.1": b"GET /v1/capabilities HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
        "no protocol": b"\0" * 4096,
    }.items():
        with subtests.test(what), connected(bridge) as talk:
            talk.sendall(sent)
            assert not to_the_end(talk).startswith(b"HTTP/1.1 2")
    with subtests.test("httpx"), pytest.raises(httpx.TransportError):
        httpx.get(bridge.url.replace("https:", "http:"), trust_env=False, timeout=PATIENCE)


def test_tls_to_a_cleartext_port_ends(secured: Secured, pki: Pki, tmp_path: Path) -> None:
    """The management port is one, also of a bridge whose data port has TLS."""
    bridge = secured()
    assert httpx.get(f"{bridge.management}/readyz", trust_env=False, timeout=PATIENCE).text == "ready\n"
    with Bridge(tmp_path, server=bridge.server) as plain:
        for url in (bridge.management, plain.url, plain.management):
            with pytest.raises(httpx.TransportError):
                httpx.get(url.replace("http:", "https:"), verify=pki.trusting(), trust_env=False, timeout=PATIENCE)
        assert httpx.get(f"{plain.url}/v1/capabilities", trust_env=False, timeout=PATIENCE).status_code == 200


def test_clients_that_never_finish_the_handshake_hold_up_nobody(secured: Secured, pki: Pki) -> None:
    bridge, target = secured(mutual=True), fresh()
    silent = [connected(bridge) for _ in range(20)]
    try:
        for half in silent[::2]:
            half.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a ClientHello
        with client(bridge, pki.known(), http2=True) as talk:
            assert produce(talk, target, b"x").status_code == 200
            assert pull(talk, target).content == b"x"
    finally:
        for each in silent:
            each.close()
