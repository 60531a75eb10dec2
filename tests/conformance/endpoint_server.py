"""The HTTP server of endpoints that tests start: a thread for each connection."""

import sys
from http.server import ThreadingHTTPServer
from typing import Any


class EndpointServer(ThreadingHTTPServer):
    """Says nothing of a client that went away before it read its answer: bridges do, and tests wait for just that."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the standard library has it
        # The method of the base class prints. From a thread that outlived its test, pytest made that an error.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
