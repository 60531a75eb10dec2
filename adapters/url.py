"""Reads the options in a backend's URL. No sentence repeats a value or a name: either may be a piece of a password."""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

Reader = Callable[[str], Any]
"""Turns the text of an option into its value. Raises `ValueError` with what is allowed."""


class Grammar(NamedTuple):
    """The options of one kind of URL. Everything raises `ValueError` with one sentence that says what is allowed."""

    scheme: str
    """With the slashes: every sentence begins with it."""
    readers: Mapping[str, Reader]

    def given(self, query: str) -> dict[str, str]:
        """Return the options of `name=value&…` as they stand there, with what % stands for."""
        given: dict[str, str] = {}
        for number, pair in enumerate(filter(None, query.split("&")), 1):
            name, equals, value = pair.partition("=")
            if not equals or name not in self.readers:
                near = get_close_matches(name, self.readers, 1)
                hint = f"did you mean {near[0]}? " if near else ""
                raise ValueError(
                    f"{self.scheme}: option {number} is none; {hint}allowed are {', '.join(self.readers)}."
                )
            if name in given:
                raise ValueError(f"{self.scheme}: {name} is given twice; once is allowed.")
            given[name] = self.unescaped(value)
        return given

    def with_login(self, given: dict[str, str], userinfo: str) -> dict[str, str]:
        """Return the options together with the `user:password` that stood before the @."""
        user, colon, password = userinfo.partition(":")
        login = {"user": user, **({"password": password} if colon else {})}
        for name in login:
            if name in given:
                raise ValueError(f"{self.scheme}: {name} is given before the @ and as an option; once is allowed.")
        return given | {name: self.unescaped(text) for name, text in login.items()}

    def read(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return what the options' readers return."""
        return {name: self._read(name, text) for name, text in given.items()}

    def unescaped(self, text: str) -> str:
        """Return the text with what % stands for."""
        try:
            return unquote(text, errors="strict")
        except UnicodeDecodeError:
            raise ValueError(f"{self.scheme}: what % stands for in the URL is not UTF-8.") from None

    def _read(self, name: str, text: str) -> Any:  # noqa: ANN401 - what the option's reader returns
        try:
            return self.readers[name](text)
        except ValueError as error:
            raise ValueError(f"{self.scheme}: {name}: {error}.") from None


def whole_number(least: int, most: int) -> Reader:
    """Return what reads a whole number."""

    def read(text: str) -> int:
        # isdigit alone also takes other scripts' digits; the length keeps int() away from hostile ones
        if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most:
            return int(text)
        raise ValueError(f"a whole number from {least} to {most} is allowed, in plain digits")

    return read


def one_of(*words: str) -> Reader:
    """Return what reads one of these words."""

    def read(text: str) -> str:
        if text in words:
            return text
        raise ValueError(f"one of {', '.join(words)} is allowed")

    return read


def switch(text: str) -> bool:
    """Read a switch."""
    if text in {"true", "false"}:
        return text == "true"
    raise ValueError("true or false is allowed")


def short_name(text: str) -> str:
    """Read a piece of the names of topics or queues."""
    if re.fullmatch(r"[A-Za-z0-9._-]{1,100}", text):
        return text
    raise ValueError("1 to 100 of A-Z a-z 0-9 . _ - are allowed, as in names of topics")


def printable(text: str) -> str:
    """Read free text."""
    if text and text.isprintable():
        return text
    raise ValueError("it is empty, or holds characters that cannot be printed")


def readable(text: str) -> Path:
    """Read the path of a file that can be read."""
    try:
        path = Path(text)
        with path.open("rb"):
            return path
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise ValueError(f"the file cannot be read ({reason})") from None


def password_in(text: str) -> str:
    """Read the path of a file with a password, and return the password."""
    try:
        held = readable(text).read_text("utf-8").strip()
    except UnicodeDecodeError:
        held = ""
    if not held or len(held.splitlines()) > 1:
        raise ValueError("the file holds one line of text, the password")
    return held
