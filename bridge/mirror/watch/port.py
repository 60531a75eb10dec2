"""The port of a mirror: probes, metrics, status. Never messages.

The standard library's server in a thread of its own: the job has no event loop, and a scrape every few seconds needs
none. What the library leaves open is closed here: slow clients, too many of them.
"""

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from typing import Final, NamedTuple

from bridge.errors import CannotStart
from bridge.server.listener import Listener, bind
from bridge.settings import Address

CLIENTS: Final = 16
"""Connections at a time; one more is closed."""
PATIENCE: Final = 10.0
"""Seconds that a client may be silent."""


class Answer(NamedTuple):
    """What a page says."""

    body: bytes
    media_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK


Pages = Mapping[str, Callable[[], Answer]]
"""By path."""
Request = socket | tuple[bytes, socket]
"""As the library's servers have it, of TCP and of UDP."""

_log = logging.getLogger(__name__)


@contextmanager
def serving(address: Address, pages: Pages) -> Iterator[Address]:
    """Serve the pages while the block runs; gives the address, with its real port.

    Raises `CannotStart` if the address cannot be had.
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
    def __init__(self, listening: socket, pages: Pages) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.pages = pages
        self.block_on_close = False
        self._room = threading.BoundedSemaphore(CLIENTS)

    def process_request(self, request: Request, client_address: object) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Request, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Request, client_address: object) -> None:  # noqa: ARG002 - the library's
        error = sys.exception()
        if not isinstance(error, OSError):  # those are a client that left
            _log.error("a defect of the mirror's port", exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE
    server: _Server

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        answer = Answer(b"not found\n", status=HTTPStatus.NOT_FOUND) if page is None else page()
        self.send_response(answer.status)
        self.send_header("content-type", answer.media_type)
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(answer.body)

    do_HEAD = do_GET  # noqa: N815

    def version_string(self) -> str:
        return "oms-bridge"

    def log_message(self, *_: object) -> None:
        """Log nothing: the metrics count."""
