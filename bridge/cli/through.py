"""`check --through`: probes that go through a proxy to a bridge, and what the proxy does to them.

Messages of the probes are produced to a destination, and taken out of it again.
"""

import http.client
import json
import os
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit
from uuid import uuid4

from bridge.errors import BackendUnavailable, OutcomeUnknown, decode_problem
from bridge.settings.values import authorization

GROUP: Final = "oms-check"
SILENT: Final = "-silent"
"""The end of the name of the second destination, which stays empty."""

_SECONDS: Final = 30.0
"""For an answer that nothing delays."""
_AT_ONCE: Final = 5.0
"""Seconds after which a message of a stream counts as held back."""
_HEARTBEAT: Final = 25.0
"""Seconds within which a silent stream must have a heartbeat: the bridge sends one each 15 s."""
_NAMES: Final = {
    "an underscore": ("x-oms-p-under_score", "under_score"),
    "a dot": ("x-oms-p-dot.ted", "dot.ted"),
    "a percent sign": ("x-oms-p-%55pper", "Upper"),
}
"""Names that proxies drop: the header, and the property that it is."""
_EXTENDED: Final = ("x-oms-p-city*", "city", "Zürich")
_LINES: Final = {"accept": "application/x-ndjson"}
_KIB: Final = 1024
_MANY: Final = 200
"""Headers of one request."""
_OK: Final = 200
_EMPTY: Final = 204

Headers = Mapping[str, str]


class Finding(NamedTuple):
    """What became of one probe."""

    probe: str
    ok: bool
    detail: str


def passed(probe: str, detail: str) -> Finding:
    """Return the finding of a probe to which nothing happened."""
    return Finding(probe, ok=True, detail=detail)


def lost(probe: str, detail: str) -> Finding:
    """Return the finding of a probe of which something is missing or late."""
    return Finding(probe, ok=False, detail=detail)


class Answer(NamedTuple):
    """A response; names of headers in lower case. Status 0: there was none, and the body says why."""

    status: int
    headers: Headers
    body: bytes
    version: int = 11

    @property
    def is_of_bridge(self) -> bool:
        """Whether the bridge has answered, not the proxy."""
        return "x-oms-version" in self.headers or "x-oms-error" in self.headers

    def __str__(self) -> str:
        return f"status {self.status}" if self.status else self.body.decode("utf-8", "replace")


class ThroughProxy:
    """Sends probes to a bridge through the proxy at `url`."""

    def __init__(self, url: str, destination: str) -> None:
        """Raises `ValueError` if the URL is none of http or https."""
        target = urlsplit(url)
        if target.scheme not in ("http", "https") or not target.hostname:
            raise ValueError("The URL of a proxy is http://host:port or https://host:port, perhaps with a path.")
        self._target = target
        self._prefix = target.path.rstrip("/")
        self._destination = destination
        self._limits: Mapping[str, int] = {}
        self._silence = 0.0
        """Seconds for which a pull and a stream are silent: the longest wait of a pull."""
        self._id = ""
        """Of the last message."""

    def probe(self) -> list[Finding]:
        """Return a finding for each probe. Raises `BridgeError` if no bridge answers."""
        answer = self._ask("GET", "/v1/capabilities")
        self._limits = _json(answer).get("limits", {})
        if not self._limits:
            raise BackendUnavailable(f"No bridge answers through {self._target.geturl()}: {answer}.")
        self._silence = self._limits["waitMills"] / 1000
        with ThreadPoolExecutor(2) as pool:
            silent = [pool.submit(self._long_pull), pool.submit(self._silent_stream)]
            return [
                passed("HTTP version", f"HTTP/{answer.version / 10}"),
                *self._names(),
                self._request_headers(),
                self._many_request_headers(),
                self._response_headers(),
                self._body(),
                self._stream(),
                *(each.result() for each in silent),
            ]

    def _names(self) -> list[Finding]:
        """Produce with headers, and look at what was stored; then store as JSON, and pull."""
        header, city, value = _EXTENDED
        extended = f"UTF-8''{quote(value)}"
        sent = {name: "1" for name, _ in _NAMES.values()} | {header: extended, "x-oms-h-messagekey*": extended}
        answer = self._ask("POST", "/v1/messages", self._produced(sent | {"x-oms-h-messageid": self._next_id()}))
        stored = self._take_line() if answer.is_of_bridge and answer.status == _OK else {}
        properties = stored.get("properties", {})
        names = [what for what, (_, name) in _NAMES.items() if name not in properties]
        values = [] if city in properties else ["properties"]
        values += [] if "messageKey" in stored.get("extensionHeader", {}) else ["fields, such as the message key"]
        self._store({name: "1" for _, name in _NAMES.values()} | {city: value})
        pulled = self._pull()
        missing = [what for what, (name, _) in _NAMES.items() if name not in pulled.headers]
        missing += [] if header in pulled.headers else ["a star (extended values)"]
        return [
            _finding("names of request headers", names, "dropped with"),
            _finding("extended values", values, "dropped of"),
            _finding("names of response headers", missing, "dropped with"),
        ]

    def _request_headers(self) -> Finding:
        """Send headers up to the limit of the bridge. It stores nothing, as it cannot honour `headers` of so many."""
        limit = self._limits["headers"]
        reached = 0
        for size in sorted({*(kib * _KIB for kib in (4, 7, 14, 28)), limit - _KIB}):
            if size >= limit:
                continue
            sent = {"x-oms-require": "headers", "x-oms-p-large": "x" * size}
            answer = self._ask("POST", "/v1/messages", self._produced(sent))
            if not answer.is_of_bridge:
                return lost("large request headers", f"{size} bytes: {answer}; {reached} reach the bridge")
            reached = size
        return passed("large request headers", f"{reached} bytes reach the bridge")

    def _many_request_headers(self) -> Finding:
        sent = {"x-oms-require": "headers", **{f"x-oms-p-n{number}": "v" for number in range(_MANY)}}
        answer = self._ask("POST", "/v1/messages", self._produced(sent))
        if not answer.is_of_bridge:
            return lost("many request headers", f"{_MANY}: {answer}")
        return passed("many request headers", f"{_MANY} reach the bridge")

    def _response_headers(self) -> Finding:
        size = 2 * _KIB
        self._store({"large": "x" * size})
        answer = self._pull()
        arrived = answer.headers.get("x-oms-p-large") == "x" * size
        return Finding("large response headers", arrived, f"{size} bytes {'arrive' if arrived else f': {answer}'}")

    def _body(self) -> Finding:
        """Send an empty batch, as large as the bridge takes."""
        limit = self._limits["body"]
        headers = {"content-type": "application/json"}
        for size in sorted({512 * _KIB, 1024 * _KIB + 1, limit}):
            if size > limit:
                continue
            answer = self._ask("POST", "/v1/messages", headers, b"[" + b" " * (size - 2) + b"]")
            if not answer.is_of_bridge:
                return lost("large bodies", f"{size} bytes: {answer}")
        return passed("large bodies", f"{limit} bytes reach the bridge")

    def _stream(self) -> Finding:
        """Open a stream and produce: the message must arrive while the stream stays open."""
        with ThreadPoolExecutor(1) as pool:
            line: Future[float | None] = pool.submit(self._first_line)
            time.sleep(1)
            produced = time.monotonic()
            self._store({})
            arrived = line.result()
        if arrived is None:
            self._take_line()
            return lost("push streams", f"held back: no message within {_AT_ONCE:g} s")
        return passed("push streams", f"a message arrives after {max(arrived - produced, 0):.3f} s")

    def _first_line(self) -> float | None:
        """Return when the first message came; None: none came in time."""
        query = _subscription(self._destination)
        with suppress(OSError, http.client.HTTPException), closing(self._connect(_AT_ONCE + 1)) as connection:
            connection.request("GET", f"{self._prefix}/v1/push?{query}", headers=_headers(_LINES))
            response = connection.getresponse()
            while line := response.readline():
                if line.strip():
                    return time.monotonic()
        return None

    def _long_pull(self) -> Finding:
        wait = int(self._silence * 1000)
        query = f"{_subscription(self._destination + SILENT)}&waitmills={wait}"
        answer = self._ask("GET", f"/v1/messages?{query}", seconds=self._silence + _SECONDS)
        return Finding("long pulls", answer.status == _EMPTY, f"{wait} ms: {answer}")

    def _silent_stream(self) -> Finding:
        """Keep a stream open that has no message: its heartbeats must arrive, and nothing may end it."""
        query = _subscription(self._destination + SILENT)
        began = time.monotonic()
        heartbeats, why = 0, "ended"
        try:
            with closing(self._connect(_HEARTBEAT)) as connection:
                connection.request("GET", f"{self._prefix}/v1/push?{query}", headers=_headers(_LINES))
                response = connection.getresponse()
                while response.status == _OK and response.readline():
                    heartbeats += 1
                    if time.monotonic() - began >= self._silence:
                        return passed("silent streams", f"open after {self._silence:g} s")
        except TimeoutError:
            why = "no heartbeat"
        except (OSError, http.client.HTTPException) as error:
            why = f"cut ({type(error).__name__})"
        return lost("silent streams", f"{why} after {time.monotonic() - began:.0f} s, {heartbeats} heartbeats")

    def _produced(self, more: Headers) -> dict[str, str]:
        return {"x-oms-h-destination": self._destination, **more}

    def _store(self, properties: Mapping[str, str]) -> None:
        """Produce a message in the JSON form, which a proxy does not read."""
        header = {"destination": self._destination, "messageId": self._next_id()}
        body = json.dumps([{"header": header, "properties": properties}]).encode()
        _check_stored(self._ask("POST", "/v1/messages", {"content-type": "application/json"}, body))

    def _next_id(self) -> str:
        self._id = uuid4().hex
        return self._id

    def _pull(self) -> Answer:
        """Take the last message out, as headers; earlier ones are of a check that was broken off."""
        while True:
            answer = self._ask("GET", f"/v1/messages?{_subscription(self._destination)}&waitmills=10000")
            if answer.status != _OK or answer.headers.get("x-oms-h-messageid") == self._id:
                return answer

    def _take_line(self) -> dict[str, Any]:
        """Take the last message out, as JSON; an empty object: it does not come."""
        while True:
            query = f"{_subscription(self._destination)}&maxmessages=1&waitmills=10000"
            answer = self._ask("GET", f"/v1/push?{query}", _LINES)
            first, *_ = [line for line in answer.body.splitlines() if line] or [b""]
            message = _json(answer._replace(body=first))
            if message.get("header", {}).get("messageId") in (self._id, None):
                return message

    def _connect(self, seconds: float) -> http.client.HTTPConnection:
        host, port = self._target.hostname or "", self._target.port
        if self._target.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=seconds)
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=ssl.create_default_context())

    def _ask(
        self, method: str, path: str, headers: Headers | None = None, body: bytes = b"", seconds: float = _SECONDS
    ) -> Answer:
        """Return the answer. A proxy may answer before it has read a request, and then close the connection."""
        with closing(self._connect(seconds)) as connection:
            try:
                with suppress(BrokenPipeError, ConnectionResetError):
                    connection.request(method, self._prefix + path, body or None, _headers(headers or {}))
                response = connection.getresponse()
                found = {name.lower(): value for name, value in response.getheaders()}
                return Answer(response.status, found, response.read(), response.version)
            except (OSError, http.client.HTTPException) as error:
                return Answer(0, {}, f"{type(error).__name__}: {error}".encode())


def _subscription(destination: str) -> str:
    return urlencode({"version": "1.0.0", "source": destination, "consumerid": GROUP})


def _headers(more: Headers) -> dict[str, str]:
    return {"x-oms-version": "1.0.0", **authorization(os.environ), **more}


def _check_stored(answer: Answer) -> None:
    """Raise the error of a probe that was not stored."""
    document = json.loads(answer.body) if answer.is_of_bridge and answer.body else {}
    first = document[0] if isinstance(document, list) and document else document
    if answer.status != _OK:
        if isinstance(first, dict) and "code" in first:
            raise decode_problem(answer.status, first)
        raise OutcomeUnknown(f"A probe was not stored: {answer}.")


def _json(answer: Answer) -> dict[str, Any]:
    try:
        document = json.loads(answer.body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _finding(probe: str, missing: list[str], text: str) -> Finding:
    return lost(probe, f"{text} {', '.join(missing)}") if missing else passed(probe, "all arrive")
