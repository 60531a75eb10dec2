"""Toxiproxy in front of a bridge: it cuts connections after the request was sent."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from tests.brokers.node import Node
from tests.brokers.ports import held_port
from tests.brokers.process import Process
from tests.brokers.provide import required

_PACKAGE: Final = "github.com/Shopify/toxiproxy/v2/cmd/server"
_VERSION: Final = "v2.5.0"
_SEED: Final = 20
_CONNECTS: Final = 6
"""Attempts to connect, the last ones seconds apart."""
_TOXICS: Final[dict[str, dict[str, int]]] = {
    "reset_peer": {"timeout": 0},  # a reset in place of the response
    "limit_data": {"bytes": 1500},  # a response that ends in the middle, after a few whole ones
    "timeout": {"timeout": 30},  # no response, and the end of the connection 30 ms after its last byte
}


@contextmanager
def cutting(url: str, directory: Path, toxicity: dict[str, float]) -> Iterator[str]:
    """Yield the URL of a proxy of the bridge at `url`. Without Go it fails in CI, and skips the test elsewhere.

    `toxicity`: by the name of a toxic, the share of the connections that it is applied to, 0 to 1. All of them are
    applied to responses, so the bridge has got each request.
    """
    program = required("toxiproxy", _PACKAGE, _VERSION)
    directory.mkdir()
    with held_port() as port:
        script = f"exec {shlex.join([str(program), '-host', '127.0.0.1', '-port', str(port), '-seed', str(_SEED)])}"
        server = Node(Process, script, directory / "toxiproxy", b"Starting HTTP server")
        server.start()
        try:
            repeated = httpx.HTTPTransport(retries=_CONNECTS)  # its log says that it starts, and then it listens
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", transport=repeated) as api:
                listen = _create(api, urlsplit(url).netloc, toxicity)
            yield f"http://{listen}"
        finally:
            server.kill()


def _create(api: httpx.Client, upstream: str, toxicity: dict[str, float]) -> str:
    """Return the host and port of a new proxy."""
    proxy = _post(api, "/proxies", {"name": "bridge", "listen": "127.0.0.1:0", "upstream": upstream, "enabled": True})
    for name, share in toxicity.items():
        _post(
            api,
            "/proxies/bridge/toxics",
            {"type": name, "stream": "downstream", "toxicity": share, "attributes": _TOXICS[name]},
        )
    return str(proxy["listen"])


def _post(api: httpx.Client, path: str, body: dict[str, object]) -> dict[str, Any]:
    created: dict[str, Any] = api.post(path, json=body).raise_for_status().json()
    return created
