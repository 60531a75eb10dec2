"""What a client sees of addresses, `http`, `tls`, the server and the backend."""

import socket
import ssl
from urllib.parse import urlsplit

import httpx

from tests.settings.bridge_client import PATIENCE, BridgeClient, code, fresh


def data_host(client: BridgeClient) -> object:
    """Connect where the ready line says."""
    assert client.ask("GET", "/v1/capabilities").status_code == httpx.codes.OK
    return urlsplit(client.bridge.url).hostname


def management_host(client: BridgeClient) -> object:
    """Connect where the ready line says."""
    assert httpx.get(f"{client.bridge.management}/readyz", trust_env=False, timeout=PATIENCE).text == "ready\n"
    return urlsplit(client.bridge.management).hostname


def server(client: BridgeClient) -> object:
    """Read who answers: Granian names itself, Hypercorn is asked not to."""
    return client.ask("GET", "/v1/capabilities").headers.get("server")


def partitions(client: BridgeClient) -> object:
    """Read how many partitions the backend gives a destination."""
    target = fresh()
    client.store(target)
    return next(count for count in range(100) if client.produce(target, partition=count).status_code != httpx.codes.OK)


def named_host(client: BridgeClient) -> object:
    """Name the bridge as a Service would be named."""
    return code(client.http.get("/v1/capabilities", headers={"host": "bridge.shop.svc"}))


def foreign_origin(client: BridgeClient) -> object:
    """Ask as a page of another origin does."""
    answer = client.http.get("/v1/capabilities", headers={"origin": "https://shop.example"})
    return answer.headers.get("access-control-allow-origin", code(answer))


def certificate(client: BridgeClient) -> object:
    """Compare the certificate that the port shows with the file."""
    if _cleartext(client):
        return "cleartext"
    with _connected(client, identified=True) as connection:
        shown = ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True) or b"")
    return "the file's" if shown.split() == client.resources.certificate.read_text("ascii").split() else "another one"


def key(client: BridgeClient) -> object:
    """Finish a handshake: the port has proved that it holds the certificate's key."""
    if _cleartext(client):
        return "cleartext"
    with _connected(client, identified=True) as connection:
        return _answer(connection)


def client_certificate(client: BridgeClient) -> object:
    """Ask without a certificate, and with one."""
    if _cleartext(client):
        return [client.ask("GET", "/v1/capabilities").status_code]
    answers = []
    for identified in (False, True):
        with _connected(client, identified=identified) as connection:
            answers.append(_answer(connection))
    return answers


def _cleartext(client: BridgeClient) -> bool:
    return urlsplit(client.bridge.url).scheme == "http"


def _connected(client: BridgeClient, *, identified: bool) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=client.resources.ca)
    if identified:
        client.resources.authority.issue_cert("client@example.org").configure_cert(context)
    parts = urlsplit(client.bridge.url)
    plain = socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE)
    return context.wrap_socket(plain, server_hostname="localhost")


def _answer(connection: ssl.SSLSocket) -> int | str:
    """Return the status of an answer: with TLS 1.3 only reading shows that the certificate was refused."""
    try:
        connection.sendall(b"GET /v1/capabilities HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = connection.recv(4096)
    except OSError:
        return "refused"
    return int(answer.split()[1]) if answer else "refused"
