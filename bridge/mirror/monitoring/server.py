"""The management port of a mirror: probes, metrics, status; never messages.

The standard library's HTTP server in its own thread: the job has no event loop, and a scrape every few seconds needs
none.
"""

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from typing import Final

from bridge.errors import CannotStart
from bridge.server.listener import Listener, bind
from bridge.settings import Address

_TIMEOUT: Final = 10.0
"""Seconds that a client may be silent."""

Response = tuple[int, str, bytes]
"""Status, media type, body."""
Pages = Mapping[str, Callable[[], Response]]
"""By path."""


_log = logging.getLogger(__name__)


@contextmanager
def serving(address: Address, pages: Pages) -> Iterator[Address]:
    """Serve the pages while the block runs; yields the address with its actual port.

    Raises `CannotStart` if it cannot listen there.
    """
    try:
        listening = bind(Listener(*address))
    except OSError as error:
        raise CannotStart(f"the metrics cannot be served: {error.strerror}") from error
    server = _Server(listening, pages)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="oms-mirror-port", daemon=True)
    thread.start()
    try:
        yield Address(address.host, listening.getsockname()[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    block_on_close = False

    def __init__(self, listening: socket, pages: Pages) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.pages = pages

    def handle_error(self, *_: object) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):  # those are clients that disconnect
            _log.error("a defect of the mirror's port", exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    timeout = _TIMEOUT
    server: _Server

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        status, media_type, body = (404, "text/plain", b"not found\n") if page is None else page()
        self.send_response(status)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def version_string(self) -> str:
        return "oms-bridge"

    def log_message(self, *_: object) -> None:
        """Log no requests."""
