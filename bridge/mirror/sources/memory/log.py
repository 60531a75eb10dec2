"""A bridge's logs over HTTP: what the in-memory backend keeps, block by block. One connection, opened when needed."""

import json
import time
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

from bridge.errors import BackendUnavailable, CannotStart, DestinationUnknown, NotFound
from bridge.mirror.offsets import Ranges
from bridge.wire import log_block
from bridge.wire.log_block import Block

_PATIENCE: Final = (0.2, 0.5, 1, 2, 4, 8, 8, 8)
"""Seconds before each further attempt of a task: a bridge that is started again is back within them."""
_TIMEOUT: Final = 30.0
_PASSING: Final = 500
"""From this status on it is the bridge's trouble, and may pass."""


class MemoryLog:
    """What one bridge keeps."""

    def __init__(self, url: str) -> None:
        """Take a bridge's address; nothing is connected yet. Raises `CannotStart`."""
        try:
            parts = urlsplit(url)
            self._place = (parts.hostname or "", parts.port)
        except ValueError:
            parts, self._place = urlsplit(""), ("", None)
        if parts.scheme not in {"http", "https"} or not self._place[0] or parts.path not in {"", "/"}:
            raise CannotStart(f"bridge: {url!r} is not the address of a bridge, as in http://127.0.0.1:8080.")
        self._url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection: HTTPConnection | None = None

    def bounds(self) -> Ranges:
        """Return the first offset kept and the next one of every log. Raises `BackendUnavailable`, `CannotStart`."""
        logs = json.loads(self._get("/v1/logs", {}))["logs"]
        return {log: (first, end) for log, (first, end) in logs.items()}

    def read(self, log: str, start: int, limit: int) -> Block | None:
        """Read from an offset on, waiting for a bridge that is away; None: there is no such log any more.

        Raises `BackendUnavailable` after half a minute, and `CannotStart`.
        """
        asked = {"x-oms-log": log, "x-oms-offset": str(start), "x-oms-maxmessages": str(limit)}
        for pause in (*_PATIENCE, None):
            try:
                return log_block.decode(self._get("/v1/log", asked))
            except DestinationUnknown:
                return None
            except BackendUnavailable:
                if pause is None:
                    raise
                time.sleep(pause)
        raise AssertionError("the last attempt raises or returns")

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _get(self, path: str, headers: dict[str, str]) -> bytes:
        if self._connection is None:
            self._connection = self._kind(*self._place, timeout=_TIMEOUT)
        try:
            self._connection.request("GET", path, headers={"x-oms-version": "1.0.0", **headers})
            answer = self._connection.getresponse()
            body = answer.read()
        except (OSError, HTTPException) as error:
            self.close()
            raise BackendUnavailable(f"The bridge at {self._url} cannot be reached: {error!r}.") from None
        if answer.status == 200:  # noqa: PLR2004 - the one answer that is none of the error tree
            return body
        raise self._refused(answer.status, answer.headers.get("x-oms-error"), body)

    def _refused(self, status: int, code: str | None, body: bytes) -> Exception:
        if code == DestinationUnknown.code:
            return DestinationUnknown("there is no such log")
        if status >= _PASSING:
            return BackendUnavailable(f"The bridge at {self._url} answers {status} {code or ''}".rstrip() + ".")
        if code == NotFound.code:
            return CannotStart(
                f"bridge: {self._url} has no /v1/log: its backend is not memory, or its version is older."
            )
        shown = body[:200].decode("utf-8", "replace")
        return CannotStart(f"bridge: {self._url} answers {status} to the mirror: {shown}")
