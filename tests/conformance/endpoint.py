"""An HTTP server for callbacks, with an endpoint for each test."""

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Final, NamedTuple, Self
from uuid import uuid4

from .endpoint_server import EndpointServer

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - of these tests
TIMEOUT: Final = 60.0


class Posted(NamedTuple):
    """One POST as it arrived."""

    headers: Mapping[str, str]
    body: bytes


Answer = tuple[int, Mapping[str, str]]


class Endpoint:
    """What callbacks may be sent to; it answers as `script` says, with 204 until it is set."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.script: Callable[[Posted], Answer] = lambda _: (204, {})
        self.posts: list[Posted] = []
        self._news = threading.Condition()

    def wait_for(self, count: int) -> list[Posted]:
        """Wait until so many POSTs have come."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.posts) >= count, TIMEOUT), self.posts
            return list(self.posts)

    def take(self, posted: Posted) -> Answer:
        """Answer a POST and keep it."""
        answer = self.script(posted)
        with self._news:
            self.posts.append(posted)
            self._news.notify_all()
        return answer


class Listener:
    """Listens on 127.0.0.1; the first segment of a path says for which endpoint. Use it as a context manager."""

    def __init__(self) -> None:
        self._endpoints: dict[str, Endpoint] = {}
        self._server = EndpointServer(("127.0.0.1", 0), self._handler())
        self._origin = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def settings(self) -> dict[str, str]:
        """Return what a bridge needs to call it."""
        return {
            "OMS_CALLBACKS__TARGETS": self._origin,
            "OMS_CALLBACKS__NETWORKS": "127.0.0.1/32",
            "OMS_CALLBACKS__SECRETS": SECRET,
        }

    def endpoint(self) -> Endpoint:
        """Return a new endpoint."""
        name = uuid4().hex
        self._endpoints[name] = Endpoint(f"{self._origin}/{name}")
        return self._endpoints[name]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoints = self._endpoints

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                posted = Posted({name.lower(): value for name, value in self.headers.items()}, body)
                status, headers = endpoints[self.path.split("/")[1]].take(posted)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler
