"""aiohttp's connection to an endpoint, with a bound on what it takes from there."""

import asyncio
from typing import Any, Final

from aiohttp import ClientPayloadError
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader

ANSWER_MAX: Final = 65536
"""Bytes of an answer that are looked at, its head and every 1xx among them; a longer one costs the connection."""
KEPT_MAX: Final = 256
"""Connections that may serve a second POST; one more serves one."""

_HTTP_OK: Final = 200


class Connection(ResponseHandler):
    """One answer to each POST, as long as `ANSWER_MAX` at most, and a close that is one.

    aiohttp 3.14.5 alone gives a connection with a waiting answer to the next POST, which takes it for its own; reads
    1xx answers for as long as they come; and sends what is left of a body to an endpoint that has answered already.
    """

    def __init__(self, all_open: "set[Connection]") -> None:
        super().__init__(asyncio.get_running_loop())
        self._all_open = all_open
        self._asked = False
        """A POST waits for its answer's head."""
        self._room = 0
        self._body: StreamReader | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it."""
        super().connection_made(transport)
        if len(self._all_open) >= KEPT_MAX:
            self.force_close()
        self._all_open.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count it no more."""
        self._all_open.discard(self)
        super().connection_lost(exc)

    def set_response_params(self, **params: Any) -> None:  # noqa: ANN401 - aiohttp's, handed on
        """Begin a POST."""
        self._asked, self._room, self._body = True, ANSWER_MAX, None
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """Read on as far as there is room. An answer cut there is as good as a whole one."""
        room = self._room
        self._room -= len(data)
        super().data_received(data[:room])
        if self._room > 0 or not data:
            return
        if self._body is not None and not self._body.is_eof():
            self._body.feed_eof()
        self.abort()
        if self._asked:
            self.set_exception(ClientPayloadError(f"no head within {ANSWER_MAX} bytes"))

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Hand the answer's head on; one that nobody asked for ends the connection instead."""
        if not self._asked:
            self.abort()
            return
        if data[0].code >= _HTTP_OK:
            self._asked, self._body = False, data[1]
        super().feed_data(data, size)

    def eof_received(self) -> None:
        """Take part in no further POST: until `connection_lost` the loop may run one that wants a connection."""
        super().eof_received()
        if self.transport is not None:
            self.transport.close()

    def close(self) -> None:
        """Close at once; what was not sent yet is dropped."""
        self.abort()
