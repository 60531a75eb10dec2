"""HTTPS: the vetted address is dialled, the certificate is judged by the name."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
import uvloop

from bridge.callbacks.retry_policy import EndpointResponse, NoResponse
from tests.security.endpoint import Endpoint, Names, Trap, obliging, outlet

NAME = "hooks.example"


class Authority:
    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self.ca = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.ca))

    @asynccontextmanager
    async def listening(
        self, *identities: str, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> AsyncIterator[tuple[Endpoint, list[str | None]]]:
        """Serve with a certificate for these; yield the endpoint and the names that clients asked for (SNI)."""
        asked: list[str | None] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(*identities).configure_cert(context)
        context.maximum_version = newest
        context.set_alpn_protocols(["h2", "http/1.1"])
        context.sni_callback = lambda _socket, name, _context: asked.append(name)
        endpoint = Endpoint(obliging)
        server = await asyncio.start_server(endpoint, "127.0.0.1", 0, ssl=context)
        endpoint.port = server.sockets[0].getsockname()[1]
        try:
            yield endpoint, asked
        finally:
            server.close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def test_the_right_certificate_at_the_vetted_address(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(monkeypatch, hooks_example=[["127.0.0.1"]])
    async with authority.listening(NAME) as (endpoint, asked):
        url = f"https://{NAME}:{endpoint.port}"
        async with outlet(url, ca=authority.ca) as egress:
            for _ in range(2):
                assert await egress.post(url + "/in", [], b"x" * 1_000_000) == EndpointResponse(200, None)
        assert asked == [NAME]
        assert names.asked == [NAME]
        assert endpoint.connections == 1


async def test_an_address_is_judged_by_itself(authority: Authority) -> None:
    async with authority.listening("127.0.0.1") as (endpoint, _):
        url = f"https://127.0.0.1:{endpoint.port}"
        async with outlet(url, ca=authority.ca) as egress:
            assert (await egress.post(url, [], b"x")).status == 200


@pytest.mark.parametrize("identity", ["other.example", "127.0.0.1", "*.hooks.example", "example"])
async def test_another_name_is_not_trusted(
    identity: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    Names(monkeypatch, hooks_example=[["127.0.0.1"]])
    async with authority.listening(identity) as (endpoint, _):
        url = f"https://{NAME}:{endpoint.port}"
        async with outlet(url, ca=authority.ca) as egress:
            with pytest.raises(NoResponse, match="CERTIFICATE_VERIFY_FAILED"):
                await egress.post(url, [], b"x")
        assert endpoint.connections == 0


async def test_another_authority_is_not_trusted_whatever_the_environment_says(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    Names(monkeypatch, hooks_example=[["127.0.0.1"]])
    async with authority.listening(NAME) as (endpoint, _):
        url = f"https://{NAME}:{endpoint.port}"
        async with outlet(url) as egress:
            with pytest.raises(NoResponse, match="CERTIFICATE_VERIFY_FAILED"):
                await egress.post(url, [], b"x")
        assert endpoint.connections == 0


async def test_keys_are_not_logged(authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    async with authority.listening("127.0.0.1") as (endpoint, _):
        url = f"https://127.0.0.1:{endpoint.port}"
        async with outlet(url, ca=authority.ca) as egress:
            assert (await egress.post(url, [], b"x")).status == 200
    assert not (tmp_path / "keys").exists()


async def test_tls_1_2_is_enough_and_cleartext_is_not(authority: Authority, trap: Trap) -> None:
    async with authority.listening("127.0.0.1", newest=ssl.TLSVersion.TLSv1_2) as (endpoint, _):
        url = f"https://127.0.0.1:{endpoint.port}"
        async with outlet(url, ca=authority.ca) as egress:
            assert (await egress.post(url, [], b"x")).status == 200
    async with outlet(f"https://127.0.0.1:{trap.port}", ca=authority.ca, milliseconds=300) as egress:
        with pytest.raises(NoResponse):
            await egress.post(f"https://127.0.0.1:{trap.port}", [], b"x")
    assert trap.sprung() == 1


def test_certificates_are_judged_on_uvloop(authority: Authority) -> None:
    async def both() -> None:
        async with authority.listening("127.0.0.1") as (endpoint, _):
            url = f"https://127.0.0.1:{endpoint.port}"
            async with outlet(url, ca=authority.ca) as egress:
                for _ in range(2):
                    assert (await egress.post(url, [], b"x")).status == 200
            async with outlet(url) as egress:
                with pytest.raises(NoResponse, match="CERTIFICATE_VERIFY_FAILED"):
                    await egress.post(url, [], b"x")
        async with authority.listening("other.example") as (endpoint, _):
            url = f"https://127.0.0.1:{endpoint.port}"
            async with outlet(url, ca=authority.ca) as egress:
                with pytest.raises(NoResponse, match="CERTIFICATE_VERIFY_FAILED"):
                    await egress.post(url, [], b"x")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(both())
