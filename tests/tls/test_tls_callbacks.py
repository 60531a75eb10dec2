"""Callbacks of a real bridge to endpoints behind TLS: the authority in `callbacks.ca` decides, and the name."""

import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.http.callback_endpoint import Endpoint, listed, produce, register, wait_until
from tests.launch import Bridge
from tests.tls.pki import Pki
from tests.tls.talk import fresh


@pytest.fixture
def endpoint(pki: Pki) -> Iterator[Endpoint]:
    """Listen with a certificate for `localhost`, and for no other name."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    pki.root.issue_cert("localhost").configure_cert(context)
    endpoint = Endpoint()
    endpoint._server.socket = context.wrap_socket(endpoint._server.socket, server_side=True)
    yield endpoint.listen()
    endpoint.close()


def test_an_endpoint_is_called_only_under_a_certificate_that_is_trusted(
    pki: Pki, endpoint: Endpoint, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    trusted, another = f"https://localhost:{endpoint.port}", f"https://127.0.0.1:{endpoint.port}"
    for what, ca, url, called in (
        ("trusted", pki.ca, trusted, True),
        ("another name", pki.ca, another, False),
        ("another authority", pki.other_ca, trusted, False),
        ("the public authorities", None, trusted, False),
    ):
        networks = {"OMS_CALLBACKS__TARGETS": f"{trusted},{another}", "OMS_CALLBACKS__NETWORKS": "127.0.0.1/32,::1/128"}
        authority = {} if ca is None else {"OMS_CALLBACKS__CA": str(ca)}
        settings = endpoint.settings() | networks | authority
        with subtests.test(what), Bridge(tmp_path / what, settings=settings) as bridge:
            source = fresh()
            assert register(bridge, source, f"{url}/{source}").status_code == 201
            produce(bridge, source, b"x")
            wait_until(partial(_tried, bridge, source))
            shown = listed(bridge, source) or {}
            assert bool(endpoint.to(f"/{source}")) == called == bool(shown["delivered"]), shown
            if not called:
                assert "certificate" in shown["failures"][0]["reason"].lower(), shown


def _tried(bridge: Bridge, source: str) -> int:
    shown = listed(bridge, source) or {}
    return int(shown["delivered"]) + int(shown["failed"])
