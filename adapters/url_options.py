"""Parses the options in a backend's URL. No error text repeats a value or a name: either may be part of a password."""

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

OptionParser = Callable[[str], Any]
"""Returns the value of an option's text. Raises `ValueError` with what is allowed."""


class Grammar(NamedTuple):
    """The options of one kind of URL. Its methods raise `ValueError` with one sentence that says what is allowed."""

    scheme: str
    """With the slashes; every error text begins with it."""
    parsers: Mapping[str, OptionParser]

    def read(self, authority: str, query: str) -> tuple[str, dict[str, Any]]:
        """Return the text behind the @ of `user:password@servers`, and the values of all options.

        The password in a `password_file` is the `password`.
        """
        userinfo, at, servers = authority.rpartition("@")
        given = self._split(query)
        if at:
            given = self._with_login(given, userinfo)
        read = {name: self._parse(name, text) for name, text in given.items()}
        if "password_file" in read:
            if "password" in read:
                raise ValueError(f"{self.scheme}: password and password_file exclude each other.")
            read["password"] = read.pop("password_file")
        return servers, read

    def _split(self, query: str) -> dict[str, str]:
        """Return names and texts of the options in `name=value&…`, percent-decoded."""
        given: dict[str, str] = {}
        for number, pair in enumerate(filter(None, query.split("&")), 1):
            name, equals, value = pair.partition("=")
            if not equals or name not in self.parsers:
                raise ValueError(f"{self.scheme}: option {number} is unknown{alternatives(name, self.parsers)}")
            if name in given:
                raise ValueError(f"{self.scheme}: {name} is given twice; once is allowed.")
            given[name] = self.unescaped(value)
        return given

    def _with_login(self, given: dict[str, str], userinfo: str) -> dict[str, str]:
        """Return the options and the `user:password` before the @."""
        user, colon, password = userinfo.partition(":")
        login = {"user": user, **({"password": password} if colon else {})}
        for name in login:
            if name in given:
                raise ValueError(f"{self.scheme}: {name} is given before the @ and as an option; once is allowed.")
        return given | {name: self.unescaped(text) for name, text in login.items()}

    def unescaped(self, text: str) -> str:
        """Return a text percent-decoded."""
        try:
            return unquote(text, errors="strict")
        except UnicodeDecodeError:
            raise ValueError(f"{self.scheme}: the percent-encoded text of the URL is not UTF-8.") from None

    def _parse(self, name: str, text: str) -> Any:  # noqa: ANN401 - whatever the option's parser returns
        try:
            return self.parsers[name](text)
        except ValueError as error:
            raise ValueError(f"{self.scheme}: {name}: {error}.") from None


def alternatives(name: str, known: Collection[str]) -> str:
    """Return how an error about an unknown option ends: with the most similar option, if any, and with all of them."""
    near = get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return f"{hint} The options are {', '.join(known)}."


def whole_number(least: int, most: int) -> OptionParser:
    """Return a parser of whole numbers, both bounds allowed."""

    def parse(text: str) -> int:
        # isdigit alone also takes other scripts' digits; the length keeps int() away from hostile ones
        if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most:
            return int(text)
        raise ValueError(f"the value must be a whole number from {least} to {most}, in plain digits")

    return parse


def one_of(*words: str) -> OptionParser:
    """Return a parser that allows these words."""

    def parse(text: str) -> str:
        if text in words:
            return text
        raise ValueError(f"the value must be one of {', '.join(words)}")

    return parse


def switch(text: str) -> bool:
    """Parse true or false."""
    if text in {"true", "false"}:
        return text == "true"
    raise ValueError("the value must be true or false")


def short_name(text: str) -> str:
    """Parse a part of the names of topics or queues."""
    if re.fullmatch(r"[A-Za-z0-9._-]{1,100}", text):
        return text
    raise ValueError("the value must have 1 to 100 characters of A-Z a-z 0-9 . _ -, as in names of topics")


def printable(text: str) -> str:
    """Parse free text."""
    if text and text.isprintable():
        return text
    raise ValueError("it is empty, or holds characters that cannot be printed")


def readable(text: str) -> Path:
    """Parse the path of a file that can be read."""
    try:
        path = Path(text)
        with path.open("rb"):
            return path
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise ValueError(f"the file cannot be read ({reason})") from None


def password_in(text: str) -> str:
    """Parse the path of a file with a password, and return the password."""
    try:
        password = readable(text).read_text("utf-8-sig").strip()
    except UnicodeDecodeError:
        password = ""
    if not password or len(password.splitlines()) > 1:
        raise ValueError("the file must hold one line of text, the password")
    return password
