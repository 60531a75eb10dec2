"""The keys of an issuer that a running bridge fetches: over http and https, rotated, and while the issuer is down."""

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest
import trustme

from tests.conformance.endpoint_server import EndpointServer
from tests.http.callback_endpoint import wait_until
from tests.http.gateway import STATIC, Gateway
from tests.launch import Bridge
from tests.tokens import AUDIENCE, TestIssuer


class KeyServer:
    """Publishes the keys of an issuer; None: it answers 503."""

    def __init__(self, keys: bytes | None, certificate: ssl.SSLContext | None = None) -> None:
        self.keys = keys
        self.fetches = 0
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.fetches += 1
                body = served.keys or b""
                self.send_response(200 if body else 503)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = EndpointServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            self._server.socket = certificate.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def started(directory: Path, server: str, issuer: dict[str, object]) -> Bridge:
    """Start a bridge with this issuer, under whose rules `login:shop` and the group `login:sales` produce."""
    directory.mkdir(parents=True)
    rule = {"principals": ["login:shop"], "groups": ["login:sales"], "allow": ["produce"], "destinations": ["orders"]}
    (directory / "rules.yaml").write_text(json.dumps({"rules": [rule]}))
    auth = {"rules": str(directory / "rules.yaml"), "issuers": {"login": {"audience": AUDIENCE, **issuer}}}
    (directory / "bridge.yaml").write_text(json.dumps({"auth": auth}))
    return Bridge(directory / "run", server=server, settings={"OMS_CONFIG": str(directory / "bridge.yaml")})


def produce(bridge: Bridge, token: str) -> httpx.Response:
    headers = {"x-oms-version": "1.0.0", "x-oms-h-destination": "orders", "authorization": f"Bearer {token}"}
    return httpx.post(f"{bridge.url}/v1/messages", headers=headers, content=b"x", timeout=60)


@pytest.fixture
def issuer() -> TestIssuer:
    return TestIssuer()


@pytest.fixture
def keys(issuer: TestIssuer) -> Iterator[KeyServer]:
    server = KeyServer(issuer.jwks("ec"))
    yield server
    server.close()


@pytest.mark.extended  # 10 s pass between two fetches
def test_keys_are_fetched_rotated_and_stay_while_the_issuer_is_down(
    tmp_path: Path, server: str, issuer: TestIssuer, keys: KeyServer
) -> None:
    said: dict[str, object] = {"issuer": issuer.issuer, "keys": f"http://127.0.0.1:{keys.port}/keys"}
    with started(tmp_path / "gateway", server, said) as bridge:
        assert produce(bridge, issuer.token("ec")).status_code == 200
        assert produce(bridge, issuer.token("rsa")).json()["code"] == "unauthenticated"
        keys.keys = issuer.jwks("rsa", "ec")
        wait_until(lambda: produce(bridge, issuer.token("rsa")).status_code == 200)  # 10 s after the first fetch
        keys.keys = None
        fetches = keys.fetches
        for number in range(50):
            assert produce(bridge, issuer.token(headers={"kid": f"random-{number}"})).status_code == 401
            assert produce(bridge, issuer.token("ec", jti=str(number))).status_code == 200
        assert keys.fetches - fetches <= 3
        assert "internal error" not in bridge.log


@pytest.mark.extended
def test_a_bridge_starts_while_the_issuer_is_down(
    tmp_path: Path, server: str, issuer: TestIssuer, keys: KeyServer
) -> None:
    good, keys.keys = keys.keys, None
    said: dict[str, object] = {"issuer": issuer.issuer, "keys": f"http://127.0.0.1:{keys.port}/keys"}
    with started(tmp_path / "gateway", server, said) as bridge:
        refused = produce(bridge, issuer.token("ec"))
        assert (refused.status_code, refused.json()["code"]) == (503, "identity-unavailable")
        assert (refused.json()["retrySafe"], refused.headers["retry-after"]) == (True, "1")
        assert "the keys of an issuer cannot be fetched" in bridge.log
        keys.keys = good
        wait_until(lambda: produce(bridge, issuer.token("ec")).status_code == 200)


def test_an_issuer_with_a_private_authority_and_other_claims(tmp_path: Path, server: str, issuer: TestIssuer) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    keys = KeyServer(issuer.jwks(), context)
    said: dict[str, object] = {
        "issuer": issuer.issuer,
        "keys": f"https://localhost:{keys.port}/keys",
        "ca": str(tmp_path / "ca.pem"),
        "algorithms": ["RS256"],
        "principal": "client_id",
        "groups": "roles",
    }
    with started(tmp_path / "gateway", server, said) as bridge:
        assert produce(bridge, issuer.token("rsa", client_id="shop", sub="a")).status_code == 200
        assert produce(bridge, issuer.token("rsa", client_id="a", roles=["sales"])).status_code == 200
        assert produce(bridge, issuer.token("rsa", client_id="a", groups=["sales"])).status_code == 403
        assert produce(bridge, issuer.token("rsa", sub="shop")).status_code == 401
        algorithm = produce(bridge, issuer.token("ec", client_id="shop"))
        assert "the algorithm of the token is not allowed" in algorithm.json()["detail"]
    with started(tmp_path / "untrusted", server, {**said, "ca": str(tmp_path / "other.pem")}) as bridge:
        assert produce(bridge, issuer.token("rsa", client_id="shop")).status_code == 503
    keys.close()


def test_a_changed_file_of_keys_is_read(tmp_path: Path, server: str) -> None:
    with Gateway(tmp_path, server) as gateway:
        with gateway.client("login:a") as client:
            assert client.get("/v1/capabilities").status_code == 200
        (tmp_path / "keys.json").write_bytes(gateway.issuer.jwks("rsa"))
        wait_until(lambda: "a changed file is in use" in gateway.bridge.log)
        (tmp_path / "keys.json").write_bytes(b"{}")
        wait_until(lambda: "a changed file is refused" in gateway.bridge.log)
        with gateway.management("auditor") as client:
            assert "oms_auth_files_refused 1.0" in client.get("/metrics").text
        gateway.write_tokens(*STATIC)  # the same: other files are still read
        token = gateway.issuer.token("rsa")
        headers = {"authorization": f"Bearer {token}"}
        assert httpx.get(f"{gateway.bridge.url}/v1/capabilities", headers=headers, timeout=60).status_code == 200
        with gateway.client("login:b") as client:  # signed by the key that is not there any more
            assert client.get("/v1/capabilities").status_code == 401
