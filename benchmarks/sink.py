"""An endpoint for callbacks that costs next to nothing: it answers 204 and counts.

`python sink.py` prints its URL and serves until SIGTERM. `GET /<number>` is answered once so many messages have come
since the last such answer, with the seconds from the first POST to the last and the number of POSTs. A POST with a
batch, as JSON or ndjson, has a `messageId` for each message.
"""

import asyncio
import re
import signal
import time
from importlib.util import find_spec
from typing import Final, cast

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_MESSAGE: Final = b'"messageId":'
_ANSWER: Final = b"HTTP/1.1 204 No Content\r\n\r\n"


class Tally:
    """The POSTs of all connections."""

    def __init__(self) -> None:
        self._posts = self._messages = 0
        self._first = self._last = 0.0
        self._waiting: tuple[int, asyncio.Transport] | None = None

    def add(self, messages: int) -> None:
        """Count one POST."""
        self._last = time.perf_counter()
        if not self._posts:
            self._first = self._last
        self._posts += 1
        self._messages += messages
        self._tell()

    def ask(self, number: int, transport: asyncio.Transport) -> None:
        """Answer on that connection once so many messages have come."""
        self._waiting = number, transport
        self._tell()

    def _tell(self) -> None:
        if self._waiting is None or self._messages < self._waiting[0]:
            return
        text = b"%.6f %d" % (self._last - self._first, self._posts)
        self._waiting[1].write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text))
        self._waiting = None
        self._posts = self._messages = 0


class Conversation(asyncio.Protocol):
    """One connection: requests with a content-length, one after the other."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._in = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer what is complete."""
        self._in += data
        while (end := self._in.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._in, 0, end)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._in) < whole:
                return
            if self._in.startswith(b"POST "):
                self._transport.write(_ANSWER)
                self._tally.add(self._in.count(_MESSAGE, end, whole) or 1)
            else:
                self._tally.ask(int(self._in[5 : self._in.index(b" ", 5)]), self._transport)
            self._in = self._in[whole:]


async def main() -> None:
    """Serve on a free port until told to stop."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    tally = Tally()
    server = await loop.create_server(lambda: Conversation(tally), "127.0.0.1", 0)
    print(f"ready at http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await stop.wait()
    server.close()


if __name__ == "__main__":
    if find_spec("uvloop") is not None:
        import uvloop

        uvloop.run(main())
    else:
        asyncio.run(main())
