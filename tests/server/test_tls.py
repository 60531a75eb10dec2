"""TLS: both protocols by ALPN, and client certificates."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import trustme

from bridge.server import Listener, Tls, serve
from bridge.server.connection_limits import Admission
from tests.server.frames import connected
from tests.server.serving import BOTH, App, Kind, running


class Pki:
    """An authority, a server's certificate, and what its clients trust."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        issued = self.authority.issue_cert("localhost", "127.0.0.1")
        self.certificate, self.key, self.ca = folder / "server.pem", folder / "server.key", folder / "ca.pem"
        issued.private_key_pem.write_to_path(str(self.key))
        self.certificate.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        self.authority.cert_pem.write_to_path(str(self.ca))

    def client(self, *alpn: str, issuer: trustme.CA | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        if issuer is not None:
            issuer.issue_cert("client@example.org").configure_cert(context)
        return context


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


@BOTH
async def test_alpn_chooses_the_protocol(kind: Kind, pki: Pki) -> None:
    async with running(kind, App(), tls=Tls(pki.certificate, pki.key)) as server:
        async with connected(server.port, tls=pki.client("h2")) as client:
            stream = client.request("/size", method="POST", end=False)
            await client.upload(stream, b"x" * 1_000_000)
            assert (await client.answer(stream)).body == b"2 1000000"
            assert len((await client.answer(client.request("/bytes/1000000"))).body) == 1_000_000
        for http2 in (True, False):
            async with httpx.AsyncClient(verify=pki.client(), http2=http2) as both:
                answer = await both.post(f"https://localhost:{server.port}/echo", content=b"x" * 100_000)
                assert (answer.http_version, len(answer.content)) == ("HTTP/2" if http2 else "HTTP/1.1", 100_000)


@BOTH
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_1_2_is_enough(kind: Kind, pki: Pki, version: ssl.TLSVersion) -> None:
    context = pki.client("h2")
    context.minimum_version = context.maximum_version = version
    async with (
        running(kind, App(), tls=Tls(pki.certificate, pki.key)) as server,
        connected(server.port, tls=context) as client,
    ):
        assert (await client.answer(client.request("/size"))).status == 200


@BOTH
async def test_tls_1_1_is_not(kind: Kind, pki: Pki) -> None:
    context = pki.client("h2")
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with running(kind, App(), tls=Tls(pki.certificate, pki.key)) as server:
        with pytest.raises(OSError):  # noqa: PT011 - an alert, or no protocol in common: as OpenSSL was built
            await asyncio.open_connection("127.0.0.1", server.port, ssl=context, server_hostname="localhost")


@BOTH
async def test_a_client_authority_demands_its_certificates(kind: Kind, pki: Pki) -> None:
    tls = Tls(pki.certificate, pki.key, client_ca=pki.ca)
    async with running(kind, App(), tls=tls) as server:
        url = f"https://localhost:{server.port}/size"
        async with httpx.AsyncClient(verify=pki.client(issuer=pki.authority), http2=True) as known:
            assert (await known.get(url)).status_code == 200
        for issuer in (None, trustme.CA()):
            async with httpx.AsyncClient(verify=pki.client(issuer=issuer), http2=True) as stranger:
                with pytest.raises((httpx.TransportError, ssl.SSLError)):  # httpx does not translate every alert
                    await stranger.get(url)


@BOTH
async def test_a_refused_client_gets_an_alert_and_the_log_has_one_line(
    kind: Kind, pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    """Granian logs nothing about handshakes."""

    def talk(context: ssl.SSLContext) -> None:
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=15) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            secured.sendall(b"GET /size HTTP/1.1\r\nhost: localhost\r\n\r\n")
            secured.recv(1)

    async with running(kind, App(), tls=Tls(pki.certificate, pki.key, client_ca=pki.ca)) as server:
        for issuer, alert in ((None, "CERTIFICATE_REQUIRED"), (trustme.CA(), "UNKNOWN_CA")):
            with pytest.raises(ssl.SSLError, match=alert):
                await asyncio.to_thread(talk, pki.client(issuer=issuer))
    lines = [vars(record) for record in caplog.records if record.name.startswith("bridge.server")]
    assert [(line["client"], line["reason"]) for line in lines] == (
        [("127.0.0.1", "it has no certificate, and tls.client_ca demands one")] if kind == "hypercorn" else []
    )


async def test_a_handshake_counts_as_a_connection(pki: Pki) -> None:
    admission = Admission(2, 100, str)
    async with running("hypercorn", App(), tls=Tls(pki.certificate, pki.key), admission=admission) as server:
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
        await _until(lambda: admission.connections == 2)
        with pytest.raises(OSError):  # noqa: PT011 - the end of the connection, in one form or another
            await asyncio.open_connection("127.0.0.1", server.port, ssl=pki.client(), server_hostname="localhost")
        for _, writer in silent:
            writer.close()
        await _until(lambda: admission.connections == 0)
        async with connected(server.port, tls=pki.client("h2")) as client:
            assert (await client.answer(client.request("/size"))).status == 200
            assert admission.connections == 1
        await _until(lambda: admission.connections == 0)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():  # noqa: ASYNC110 - a count has no event
            await asyncio.sleep(0.01)


@BOTH
async def test_stop_and_silence_over_tls(kind: Kind, pki: Pki) -> None:
    app = App()
    async with running(kind, app, tls=Tls(pki.certificate, pki.key), grace=0.5) as server:
        _reader, writer = await asyncio.open_connection("127.0.0.1", server.port)  # never starts its handshake
        async with connected(server.port, tls=pki.client("h2")) as client:
            client.request("/endless")
            client.request("/early/413", method="POST", body=b"x" * 1000, end=False)
            await client.until(lambda: len(client.answers) == 2)
            server.stop.set()
            async with asyncio.timeout(15):
                await server.task
        writer.close()


@BOTH
async def test_a_file_that_cannot_be_used_is_named(kind: Kind, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for missing in ("certificate", "key", "ca"):
        with subtests.test(missing):
            (folder := tmp_path / missing).mkdir()
            pki = Pki(folder)
            getattr(pki, missing).write_text("no PEM")
            listener = Listener("127.0.0.1", 0, Tls(pki.certificate, pki.key, pki.ca))
            with pytest.raises(OSError, match=str(getattr(pki, missing))):
                await serve(kind, App(), listener, stop=asyncio.Event(), grace=1, ready=lambda _: None)  # type: ignore[arg-type]
