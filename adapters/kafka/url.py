"""Reads the URL of the Kafka backend. No sentence repeats a value, nor a name: either may be a piece of a password."""

import logging
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import unquote, urlsplit

from adapters.kafka.options import Client, Compression, Mechanism, Options, Security

_log = logging.getLogger(__name__)

_SCHEME: Final = "kafka://"
_SERVER: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_PORT_MAX: Final = 65535
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})

Reader = Callable[[str], Any]


def _number(least: int, most: int) -> Reader:
    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most:
            return int(text)
        raise ValueError(f"a whole number from {least} to {most} is allowed, in plain digits")

    return read


def _one_of(*words: str) -> Reader:
    def read(text: str) -> str:
        if text in words:
            return text
        raise ValueError(f"one of {', '.join(words)} is allowed")

    return read


def _yes(text: str) -> bool:
    if text in {"true", "false"}:
        return text == "true"
    raise ValueError("true or false is allowed")


def _name(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9._-]{1,100}", text):
        return text
    raise ValueError("1 to 100 of A-Z a-z 0-9 . _ - are allowed, as in names of topics")


def _text(text: str) -> str:
    if text and text.isprintable():
        return text
    raise ValueError("it is empty, or holds characters that cannot be printed")


def _file(text: str) -> Path:
    try:
        path = Path(text)
        with path.open("rb"):
            return path
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise ValueError(f"the file cannot be read ({reason})") from None


def _line(text: str) -> str:
    try:
        held = _file(text).read_text("utf-8").strip()
    except UnicodeDecodeError:
        held = ""
    if not held or len(held.splitlines()) > 1:
        raise ValueError("the file holds one line of text, the password")
    return held


def _endpoint(text: str) -> str:
    try:
        parts = urlsplit(text)
        secure = parts.scheme == "https" and bool(parts.hostname)
        if (secure or (parts.scheme == "http" and parts.hostname in _LOCAL)) and parts.username is None:
            return text
    except ValueError:
        pass
    raise ValueError("an https:// URL without a user is allowed, or an http:// one of this machine")


_SECURITY: Final[Mapping[str, Reader]] = {
    "tls": _yes,
    "ca": _file,
    "certificate": _file,
    "key": _file,
    "mechanism": _one_of(*get_args(Mechanism)),
    "user": _text,
    "password": _text,
    "password_file": _line,
    "token_file": _file,
    "token_url": _endpoint,
    "scope": _text,
}
_OTHERS: Final[Mapping[str, Reader]] = {
    "client": _one_of(*get_args(Client)),
    "partitions": _number(1, 10_000),
    "replication": _number(1, 100),
    "create": _yes,
    "compression": _one_of(*get_args(Compression)),
    "lanes": _yes,
    "hold": _number(0, 3_600_000),
    "strict_delay": _yes,
    "instance": _name,
    "session": _number(1_000, 1_800_000),
    "prefix": _name,
}
_READERS: Final = {**_SECURITY, **_OTHERS}
_EXAMPLE: Final = "kafka://host:9092,host:9092?name=value&…"


def parse(url: str) -> Options:
    """Read a `kafka://` URL and the files it names. Raises `ValueError` with one sentence that says what is allowed."""
    if not url.startswith(_SCHEME):
        raise ValueError(f"The Kafka backend is {_EXAMPLE}.")
    place, _, query = url.removeprefix(_SCHEME).partition("?")
    userinfo, at, servers = place.rpartition("@")
    given = _given(query)
    if at:
        for name, value in _login(userinfo):
            if name in given:
                raise ValueError(f"kafka://: {name} is given before the @ and as an option; once is allowed.")
            given[name] = value
    read = {name: _read(name, value) for name, value in given.items()}
    security = _security({name: value for name, value in read.items() if name in _SECURITY})
    others = {name: value for name, value in read.items() if name in _OTHERS}
    return Options(servers=_servers(servers), security=security, **others)


def _servers(text: str) -> tuple[str, ...]:
    servers = tuple(text.split(","))
    for number, server in enumerate(servers, 1):
        match = _SERVER.fullmatch(server)
        if match is None or not 0 < int(match[2]) <= _PORT_MAX:
            raise ValueError(
                f"kafka://: server {number} is not host:port; {_EXAMPLE} is expected, without a path, and @ : / ? , & %"
                " in a user or password are written as %40 %3A %2F %3F %2C %26 %25."
            )
    return servers


def _login(userinfo: str) -> list[tuple[str, str]]:
    user, colon, password = userinfo.partition(":")
    return [("user", _unescaped(user)), *([("password", _unescaped(password))] if colon else [])]


def _given(query: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for number, pair in enumerate(filter(None, query.split("&")), 1):
        name, equals, value = pair.partition("=")
        if not equals or name not in _READERS:
            near = get_close_matches(name, _READERS, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ValueError(f"kafka://: option {number} is none; {hint}allowed are {', '.join(_READERS)}.")
        if name in given:
            raise ValueError(f"kafka://: {name} is given twice; once is allowed.")
        given[name] = _unescaped(value)
    return given


def _unescaped(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("kafka://: what % stands for in the URL is not UTF-8.") from None


def _read(name: str, value: str) -> Any:  # noqa: ANN401 - what the option's reader returns
    try:
        return _READERS[name](value)
    except ValueError as error:
        raise ValueError(f"kafka://: {name}: {error}.") from None


def _security(given: dict[str, Any]) -> Security:
    if "password_file" in given:
        if "password" in given:
            raise ValueError("kafka://: password and password_file exclude each other.")
        given["password"] = given.pop("password_file")
    security = Security(**given)
    for wrong, said in _contradictions(security):
        if wrong:
            raise ValueError(f"kafka://: {said}.")
    if security.mechanism is not None and not security.tls:
        _log.warning("Kafka: the login goes over the network without TLS (mechanism= without tls=true).")
    return security


def _contradictions(given: Security) -> list[tuple[bool, str]]:
    bearer = given.mechanism == "OAUTHBEARER"
    named = given.user is not None and given.password is not None
    some = given.user is not None or given.password is not None
    token = given.token_file is not None or given.token_url is not None
    return [
        (not given.tls and bool(given.ca or given.certificate or given.key), "ca, certificate and key need tls=true"),
        ((given.certificate is None) != (given.key is None), "certificate and key are given together"),
        (some and not given.mechanism, "a user or password needs mechanism=PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"),
        (bool(given.mechanism) and not bearer and not named, "this mechanism needs a user and a password"),
        (token and not bearer, "token_file and token_url need mechanism=OAUTHBEARER"),
        (bearer and not token, "OAUTHBEARER needs token_file or token_url"),
        (bool(given.token_file and given.token_url), "token_file and token_url exclude each other"),
        (bool(given.token_url) and not named, "token_url needs a user and a password, the client's id and secret"),
        (bool(given.token_file) and some, "token_file stands in the place of a user and a password"),
        (bool(given.scope) and not given.token_url, "scope needs token_url"),
    ]
