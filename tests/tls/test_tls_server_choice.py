"""The setting `server: auto` behind TLS: Granian serves, unless only Hypercorn can use the files."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448

from tests.launch import Bridge
from tests.tls.pki import Pki
from tests.tls.talk import PATIENCE, client
from tests.tls.test_tls_start import CERTIFICATE, CLIENT_CA, KEY, assert_one_sentence, ended

AUTO: Final = {"OMS_SERVER": "auto"}
KEYS: Final[dict[str, Callable[[], ec.EllipticCurvePrivateKey | ed448.Ed448PrivateKey]]] = {
    "p521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "ed448": ed448.Ed448PrivateKey.generate,
}
"""What makes a key that only OpenSSL can use."""


def status(bridge: Bridge) -> tuple[str, str]:
    """Return which server `/status` names, and the reason."""
    said = httpx.get(f"{bridge.management}/status", trust_env=False, timeout=PATIENCE).json()
    return said["server"], said["serverReason"]


def test_granian_serves_usual_files(pki: Pki, tmp_path: Path) -> None:
    with Bridge(tmp_path, settings=pki.settings(mutual=False) | AUTO) as bridge:
        assert status(bridge) == ("granian", "installed by the extra fast")
        with client(bridge, pki.trusting(), http2=True) as talk:
            assert talk.get("/v1/capabilities").headers["server"] == "granian"


def test_hypercorn_serves_keys_that_granian_cannot_use(pki: Pki, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for name, generate in KEYS.items():
        certificate, file = pki.self_signed(name, generate())
        reason = f"Granian cannot serve TLS with {certificate} and {file}"
        settings = {CERTIFICATE: str(certificate), KEY: str(file)}
        with subtests.test(name), Bridge(tmp_path / name, settings=settings | AUTO) as bridge:
            assert status(bridge) == ("hypercorn", reason)
            with client(bridge, ssl.create_default_context(cafile=certificate), http2=True) as talk:
                assert talk.get("/v1/capabilities").status_code == 200
        with subtests.test(f"{name}, granian is set"):
            wrong = settings | {"OMS_SERVER": "granian"}
            for command in "serve", "check":
                assert_one_sentence(ended(command, tmp_path, wrong), f"server: {reason}.")


def test_hypercorn_serves_client_certificates_of_every_kind(pki: Pki, tmp_path: Path) -> None:
    certificate, key = pki.self_signed("client-p521", ec.generate_private_key(ec.SECP521R1()))
    settings = pki.settings(mutual=False) | {CLIENT_CA: str(certificate)}
    context = pki.trusting()
    context.load_cert_chain(certificate, key)
    with Bridge(tmp_path, settings=settings | AUTO) as bridge:
        server, reason = status(bridge)
        assert (server, "client certificates" in reason) == ("hypercorn", True)
        with client(bridge, context, http2=True) as talk:
            assert talk.get("/v1/capabilities").status_code == 200
